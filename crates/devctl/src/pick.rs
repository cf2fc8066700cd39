//! Choosing on a terminal. What can be chosen is computed in `choice`, without a terminal; here people are asked.

pub mod choice;

use std::fmt;
use std::fmt::Display;

use futures_util::future::try_join_all;
use inquire::{Select, Text};
use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::queue::{DryRunSpec, Size};
use odc_api::v1alpha1::DevServerFlavor;

use crate::app::App;
use crate::args::Request;
use crate::command::avail::Told;
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::prospect::told;
use crate::talk::unanswered;
use choice::{Count, Row};

/// How many rows of a list are seen at once.
const PAGE: usize = 12;

/// One of several servers.
pub fn server(mut servers: Vec<Glance>, width: usize) -> Result<Glance> {
    let rows = choice::servers(&servers, width, Timestamp::now());
    let chosen = select("Which server?", rows)?;
    Ok(servers.swap_remove(chosen.0))
}

/// One of several servers, or all of them.
pub fn one_or_all(mut servers: Vec<Glance>, width: usize) -> Result<Vec<Glance>> {
    let rows = choice::servers(&servers, width, Timestamp::now());
    let all = format!("all {} of them", servers.len());
    let options: Vec<String> = rows.into_iter().map(|row| row.text).chain([all]).collect();
    let (chosen, _) = select("Which server?", options)?;
    Ok(if chosen < servers.len() { vec![servers.swap_remove(chosen)] } else { servers })
}

/// One of the nodes of a gang.
pub fn node(server: &Glance) -> Result<u32> {
    let nodes = choice::nodes(server);
    let (chosen, _) = select(&format!("Which node of {}?", server.name()), nodes)?;
    u32::try_from(chosen).map_err(|error| Failure::failed(format!("there is no such node: {error}")))
}

/// What a person chose for a new server.
pub struct Chosen {
    pub request: Request,
    pub name: Option<String>,
}

/// Asks for what was not said: the machine from what is free, how many, how long, a name.
pub async fn create(app: &App, said: &Request, name: Option<&str>, all: bool) -> Result<Chosen> {
    let mut request = said.clone();
    let (flavors, told) = look(app).await?;
    let (flavor, told) = match said.flavor.as_deref() {
        Some(named) => (crate::reserve::flavor_named(named, &flavors)?.clone(), told),
        None => flavor(app, flavors, told, all).await?,
    };
    request.flavor = Some(flavor.name_any());
    if said.gpus.is_none() && said.nodes.is_none() && flavor.spec.device.is_some() {
        let sizes = sizes(app, &flavor, told).await?;
        let count = count(&flavor, &sizes)?;
        (request.gpus, request.nodes) = (Some(count.gpus), Some(count.nodes));
    }
    if said.time.is_none() && said.hours.is_none() && (all || app.settings.create()?.lifetime.is_none()) {
        request.time = Some(lifetime(&flavor)?);
    }
    let name = match name {
        Some(_) => None,
        None => self::name()?,
    };
    Ok(Chosen { request, name })
}

async fn look(app: &App) -> Result<(Vec<DevServerFlavor>, Told)> {
    tokio::try_join!(app.backend.flavors(), told(app, app.backend.availabilities()))
}

/// The table of what is free is the list to choose from.
async fn flavor(
    app: &App,
    mut flavors: Vec<DevServerFlavor>,
    mut told: Told,
    mut spot: bool,
) -> Result<(DevServerFlavor, Told)> {
    let me = app.place().owner.clone();
    loop {
        if flavors.is_empty() {
            return Err(Failure::not_found("this cluster has no flavors")
                .advise("An administrator makes them: devctl admin flavor apply."));
        }
        let (title, rows) = choice::flavors(&flavors, &told, me.as_deref(), spot, app.talk.width());
        let mut options: Vec<FlavorOption> = rows.into_iter().map(FlavorOption::Flavor).collect();
        if !spot && flavors.iter().any(|flavor| flavor.spec.spot) {
            options.push(FlavorOption::Spot);
        }
        options.push(FlavorOption::Refresh);
        // Two places for the mark of the chosen row.
        app.talk.say(format!("  {title}"));
        match select("Which machine?", options)?.1 {
            FlavorOption::Refresh => (flavors, told) = look(app).await?,
            FlavorOption::Spot => spot = true,
            FlavorOption::Flavor(Row { refusal: Some(refusal), .. }) => app.talk.say(refusal),
            FlavorOption::Flavor(row) => return Ok((flavors.swap_remove(row.index), told)),
        }
    }
}

enum FlavorOption {
    Flavor(Row),
    Spot,
    Refresh,
}

impl Display for FlavorOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flavor(row) => row.fmt(f),
            Self::Spot => f.write_str("show spot flavors too"),
            Self::Refresh => f.write_str("look again"),
        }
    }
}

/// When each size on offer would start. The queue says it of the usual ones by itself, and of others when asked.
async fn sizes(app: &App, flavor: &DevServerFlavor, told: Told) -> Result<Vec<Size>> {
    let name = flavor.name_any();
    let Some(said) = told.into_iter().flatten().find(|told| told.metadata.name.as_ref() == Some(&name)) else {
        return Ok(Vec::new());
    };
    let is_said = |size: &(u32, u32)| said.sizes.iter().any(|said| (said.count, said.nodes) == *size);
    let missing = choice::offered(flavor).into_iter().filter(|size| !is_said(size));
    let ask = |(count, nodes): (u32, u32)| {
        let asked =
            DryRunSpec { flavor: name.parse().ok(), count: Some(count), nodes: Some(nodes), ..DryRunSpec::default() };
        async move {
            let answer = app.backend.dry_run(asked).await?.ok();
            Ok(answer.map(|answer| Size { count, nodes, start: answer.start, message: answer.message }))
        }
    };
    let asked = try_join_all(missing.map(ask)).await?;
    Ok(said.sizes.into_iter().chain(asked.into_iter().flatten()).collect())
}

fn count(flavor: &DevServerFlavor, sizes: &[Size]) -> Result<Count> {
    let counts = choice::counts(flavor, sizes, Timestamp::now());
    Ok(select("How many GPUs?", counts)?.1)
}

fn lifetime(flavor: &DevServerFlavor) -> Result<Duration> {
    let presets = choice::lifetimes(flavor);
    let usual = presets.iter().position(|preset| preset.usual).unwrap_or(0);
    let mut options: Vec<String> = presets.iter().map(ToString::to_string).collect();
    options.push("another time".to_owned());
    let asked = Select::new("For how long?", options).with_starting_cursor(usual).with_page_size(PAGE);
    let chosen = asked.raw_prompt().map_err(|error| unanswered(&error))?.index;
    if let Some(preset) = presets.get(chosen) {
        return Ok(preset.length);
    }
    let typed = inquire::CustomType::<Duration>::new("How long?")
        .with_help_message("such as 45m or 6h30m")
        .with_error_message("Write it like 45m or 6h30m.");
    typed.prompt().map_err(|error| unanswered(&error))
}

fn name() -> Result<Option<String>> {
    let made = crate::reserve::generated();
    let asked = Text::new("What shall it be called?").with_default(made.as_str());
    asked.prompt().map(Some).map_err(|error| unanswered(&error))
}

/// Which of these, and its place among them.
pub fn select<T: Display>(question: &str, options: Vec<T>) -> Result<(usize, T)> {
    // What stays on the screen is the choice, not the whole row.
    let short: &dyn Fn(inquire::list_option::ListOption<&T>) -> String = &|chosen| {
        let row = chosen.value.to_string();
        row.split("  ").next().unwrap_or_default().to_owned()
    };
    let chosen = Select::new(question, options).with_page_size(PAGE).with_formatter(short).raw_prompt();
    chosen.map(|chosen| (chosen.index, chosen.value)).map_err(|error| unanswered(&error))
}
