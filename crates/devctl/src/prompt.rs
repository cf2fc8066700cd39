//! Prompts with options. `options` computes them; this module asks.

pub mod home;
pub mod options;

use std::fmt::{self, Display};

use futures_util::future::try_join_all;
use inquire::{Select, Text};
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::queue::{AvailableSize, DryRunSpec};
use odc_api::v1alpha1::DevServerFlavor;

use crate::clock;
use crate::command::avail::AvailabilityData;
use crate::config::CreateDefaults;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::queue::fetch_or_warn;
use crate::model::server::ServerSummary;
use crate::request;
use crate::request::args::{HomeArgs, RequestArgs};
use crate::resolve::list_own;
use crate::ui::prompt_error;
use options::{Count, Row};

/// Visible rows of a list.
const PAGE_SIZE: usize = 12;

/// Prompts for one of several servers.
pub fn server(mut servers: Vec<ServerSummary>, width: usize) -> Result<ServerSummary> {
    let rows = options::servers(&servers, width, clock::now());
    let (chosen, _) = select("Which server?", rows)?;
    Ok(servers.swap_remove(chosen))
}

/// Prompts for one of several servers, or all.
pub fn one_or_all(mut servers: Vec<ServerSummary>, width: usize) -> Result<Vec<ServerSummary>> {
    let rows = options::servers(&servers, width, clock::now());
    let all = format!("all {} servers", servers.len());
    let options: Vec<String> = rows.into_iter().map(|row| row.text).chain([all]).collect();
    let (chosen, _) = select("Which server?", options)?;
    Ok(if chosen < servers.len() { vec![servers.swap_remove(chosen)] } else { servers })
}

/// Prompts for a node of a multi-node server.
pub fn node(server: &ServerSummary) -> Result<u32> {
    let nodes = options::nodes(server);
    let (chosen, _) = select(&format!("Which node of {}?", server.name()), nodes)?;
    u32::try_from(chosen).map_err(|error| Error::failed(format!("invalid node: {error}")))
}

/// The answers of [`create`].
pub struct CreateAnswers {
    pub request: RequestArgs,
    pub name: Option<String>,
}

/// Prompts for what the flags leave open: flavor, number of GPUs, lifetime, home, name. With `all`, config defaults are asked
/// for as well.
pub async fn create(ctx: &ClusterContext, flags: &RequestArgs, name: Option<&str>, all: bool) -> Result<CreateAnswers> {
    let mut request = flags.clone();
    let (flavors, availability) = fetch(ctx).await?;
    let (flavor, availability) = match flags.flavor.as_deref() {
        Some(name) => (request::find_flavor(name, &flavors)?.clone(), availability),
        None => flavor(ctx, flavors, availability, all).await?,
    };
    request.flavor = Some(flavor.name_any());
    if flags.gpus.is_none() && flags.nodes.is_none() && flavor.spec.device.is_some() {
        let sizes = fetch_sizes(ctx, &flavor, availability).await?;
        let count = count(&flavor, &sizes)?;
        (request.gpus, request.nodes) = (Some(count.gpus), Some(count.nodes));
    }
    if flags.requested_lifetime().is_none() && (all || ctx.settings.create()?.lifetime.is_none()) {
        request.lifetime = Some(lifetime(&flavor)?);
    }
    let defaults = ctx.settings.create()?;
    let is_set = defaults.disk.is_some() || defaults.home_claim.is_some() || defaults.home_size.is_some();
    if !flags.home.is_set() && (all || !is_set) && request.nodes.unwrap_or(1) == 1 && !request.distributed {
        request.home = ask_home(ctx, &defaults).await?;
    }
    let name = match name {
        Some(_) => None,
        None => self::name()?,
    };
    Ok(CreateAnswers { request, name })
}

/// Prompts for the home, with the disks of the user.
async fn ask_home(ctx: &ClusterContext, defaults: &CreateDefaults) -> Result<HomeArgs> {
    let (disks, servers) = tokio::try_join!(ctx.client.disks(), list_own(ctx))?;
    let (default, size) = (request::home::default_name(defaults)?, request::home::default_size(defaults));
    home::ask("Home directory?", home::all(default.as_str(), size, &disks, &servers), &disks)
}

async fn fetch(ctx: &ClusterContext) -> Result<(Vec<DevServerFlavor>, AvailabilityData)> {
    tokio::try_join!(ctx.client.flavors(), fetch_or_warn(ctx, ctx.client.availabilities()))
}

/// Prompts for a flavor with the table of `devctl avail`.
async fn flavor(
    ctx: &ClusterContext,
    mut flavors: Vec<DevServerFlavor>,
    mut availability: AvailabilityData,
    mut spot: bool,
) -> Result<(DevServerFlavor, AvailabilityData)> {
    let user = ctx.target().owner.clone();
    loop {
        if flavors.is_empty() {
            return Err(Error::not_found("this cluster has no flavors")
                .with_hint("ask your administrator to run `devctl admin flavor apply`"));
        }
        let (header, rows) = options::flavors(&flavors, &availability, user.as_deref(), spot, ctx.ui.width());
        let mut options: Vec<FlavorOption> = rows.into_iter().map(FlavorOption::Flavor).collect();
        if !spot && flavors.iter().any(|flavor| flavor.spec.spot) {
            options.push(FlavorOption::ShowSpot);
        }
        options.push(FlavorOption::Refresh);
        // The prompt indents its rows by two cells.
        ctx.ui.info(format!("  {header}"));
        match select("Which flavor?", options)?.1 {
            FlavorOption::Refresh => (flavors, availability) = fetch(ctx).await?,
            FlavorOption::ShowSpot => spot = true,
            FlavorOption::Flavor(Row { disabled: Some(reason), .. }) => ctx.ui.info(reason),
            FlavorOption::Flavor(row) => return Ok((flavors.swap_remove(row.index), availability)),
        }
    }
}

enum FlavorOption {
    Flavor(Row),
    ShowSpot,
    Refresh,
}

impl Display for FlavorOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flavor(row) => row.fmt(f),
            Self::ShowSpot => f.write_str("show spot flavors"),
            Self::Refresh => f.write_str("refresh"),
        }
    }
}

/// Returns the start times of the offered sizes. Those that the availability does not contain need a dry run each.
async fn fetch_sizes(
    ctx: &ClusterContext,
    flavor: &DevServerFlavor,
    availability: AvailabilityData,
) -> Result<Vec<AvailableSize>> {
    let name = flavor.name_any();
    let Some(known) = availability.into_iter().flatten().find(|entry| entry.metadata.name.as_ref() == Some(&name))
    else {
        return Ok(Vec::new());
    };
    let is_known = |size: &(u32, u32)| known.sizes.iter().any(|known| (known.count, known.nodes) == *size);
    let missing = options::offered(flavor).into_iter().filter(|size| !is_known(size));
    let dry_run = |(count, nodes): (u32, u32)| {
        let spec =
            DryRunSpec { flavor: name.parse().ok(), count: Some(count), nodes: Some(nodes), ..DryRunSpec::default() };
        async move {
            let status = ctx.client.dry_run(spec).await?.ok();
            Ok(status.map(|status| AvailableSize { count, nodes, start: status.start, message: status.message }))
        }
    };
    let fetched = try_join_all(missing.map(dry_run)).await?;
    Ok(known.sizes.into_iter().chain(fetched.into_iter().flatten()).collect())
}

fn count(flavor: &DevServerFlavor, sizes: &[AvailableSize]) -> Result<Count> {
    let counts = options::counts(flavor, sizes, clock::now());
    Ok(select("How many GPUs?", counts)?.1)
}

fn lifetime(flavor: &DevServerFlavor) -> Result<Duration> {
    let presets = options::lifetimes(flavor);
    let default = presets.iter().position(|preset| preset.default).unwrap_or(0);
    let mut options: Vec<String> = presets.iter().map(ToString::to_string).collect();
    options.push("other".to_owned());
    let prompt = Select::new("Lifetime?", options).with_starting_cursor(default).with_page_size(PAGE_SIZE);
    let chosen = prompt.raw_prompt().map_err(|error| prompt_error(&error))?.index;
    match presets.get(chosen) {
        Some(preset) => Ok(preset.lifetime),
        None => duration("Lifetime?", "6h30m"),
    }
}

/// Prompts for a duration.
pub fn duration(question: &str, example: &str) -> Result<Duration> {
    let prompt = inquire::CustomType::<Duration>::new(question);
    let (help, invalid) = (format!("such as 45m or {example}"), format!("Enter a duration such as 45m or {example}."));
    prompt.with_help_message(&help).with_error_message(&invalid).prompt().map_err(|error| prompt_error(&error))
}

fn name() -> Result<Option<String>> {
    let generated = request::generate();
    let prompt = Text::new("Server name?").with_default(generated.as_str());
    prompt.prompt().map(Some).map_err(|error| prompt_error(&error))
}

/// Prompts for one of several options. Returns its index and the option.
pub fn select<T: Display>(question: &str, options: Vec<T>) -> Result<(usize, T)> {
    // After the choice, only the first column stays on the screen.
    let first_column: &dyn Fn(inquire::list_option::ListOption<&T>) -> String = &|chosen| {
        let row = chosen.value.to_string();
        row.split("  ").next().unwrap_or_default().to_owned()
    };
    let chosen = Select::new(question, options).with_page_size(PAGE_SIZE).with_formatter(first_column).raw_prompt();
    chosen.map(|chosen| (chosen.index, chosen.value)).map_err(|error| prompt_error(&error))
}
