//! `devctl flavors`.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::v1alpha1::{DevServerFlavor, Per, Privilege};
use serde::Serialize;

use super::avail::{device, schedulable};
use crate::context::ClusterContext;
use crate::error::Result;
use crate::output::duration::format_duration;
use crate::output::{Column, Table};
use crate::request::find_flavor;

#[derive(Args, Debug)]
pub struct FlavorsArgs {
    /// Only these flavors
    #[arg(value_name = "FLAVOR", add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
    pub flavors: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorJson {
    name: String,
    display_name: Option<String>,
    default: bool,
    /// The extended resource of its devices; null without devices.
    device: Option<String>,
    model: Option<String>,
    device_memory: Option<String>,
    devices_per_node: Option<u32>,
    /// The allowed device counts; empty for any.
    counts: Vec<u32>,
    cpu: String,
    memory: String,
    /// The unit of `cpu` and `memory`: Device or Server.
    per: &'static str,
    max_lifetime: Option<String>,
    max_extension: Option<String>,
    max_total: Option<String>,
    /// Whether users are root in its servers.
    sudo: bool,
    price_per_device_hour: Option<String>,
    schedulable: String,
    maintenance: Option<String>,
    spot: bool,
}

pub async fn run(ctx: &ClusterContext, args: FlavorsArgs) -> Result<()> {
    let flavors = ctx.client.flavors().await?;
    ctx.ui.trace_step("reading flavors");
    let selected: Vec<&DevServerFlavor> = if args.flavors.is_empty() {
        flavors.iter().collect()
    } else {
        args.flavors.iter().map(|name| find_flavor(name, &flavors)).collect::<Result<_>>()?
    };
    print(ctx, &selected)
}

pub fn print(ctx: &ClusterContext, flavors: &[&DevServerFlavor]) -> Result<()> {
    let rows: Vec<FlavorJson> = flavors.iter().map(|flavor| to_json(flavor)).collect();
    if rows.is_empty() && !ctx.out.structured() {
        ctx.ui.info("No flavors found. An administrator creates them with `devctl admin flavor apply`.");
        return Ok(());
    }
    ctx.out.show(&rows, || rows.iter().map(|row| row.name.clone()).collect(), || table(flavors))
}

fn to_json(flavor: &DevServerFlavor) -> FlavorJson {
    let spec = &flavor.spec;
    let device = spec.device.as_ref();
    FlavorJson {
        name: flavor.name_any(),
        display_name: spec.display_name.as_ref().map(ToString::to_string),
        default: spec.default,
        device: device.map(|device| device.resource.clone()),
        model: device.and_then(|device| device.model.as_ref()).map(ToString::to_string),
        device_memory: device.and_then(|device| device.memory).map(|memory| memory.to_string()),
        devices_per_node: device.map(|device| device.per_node),
        counts: device.map(|device| device.counts.clone()).unwrap_or_default(),
        cpu: spec.resources.cpu.to_string(),
        memory: spec.resources.memory.to_string(),
        per: per(spec.resources.per),
        max_lifetime: spec.limits.lifetime.map(|time| time.to_string()),
        max_extension: spec.limits.extension.map(|time| time.to_string()),
        max_total: spec.limits.total.map(|time| time.to_string()),
        sudo: spec.privilege == Privilege::Sudo,
        price_per_device_hour: spec.price_per_device_hour.map(|price| price.to_string()),
        schedulable: schedulable(&flavor.status.clone().unwrap_or_default()).to_owned(),
        maintenance: spec.maintenance.as_ref().map(|maintenance| maintenance.message.clone()),
        spot: spec.spot,
    }
}

const fn per(per: Per) -> &'static str {
    match per {
        Per::Device => "Device",
        Per::Server => "Server",
    }
}

fn table(flavors: &[&DevServerFlavor]) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("DESCRIPTION").drop_priority(7).truncate(),
        Column::new("GPU").drop_priority(2),
        Column::new("COUNTS").drop_priority(3),
        Column::new("CPU").drop_priority(5),
        Column::new("MEMORY").drop_priority(5),
        Column::new("MAX LIFETIME").drop_priority(6),
        Column::new("SCHEDULABLE").drop_priority(1),
        Column::new("SUDO").wide(),
        Column::new("PRICE/H").wide(),
        Column::new("MAINTENANCE").wide(),
    ]);
    for flavor in flavors {
        let row = to_json(flavor);
        let per_device = if flavor.spec.resources.per == Per::Device { "/GPU" } else { "" };
        let default = if row.default { " (default)" } else { "" };
        table.row([
            format!("{}{default}", row.name).into(),
            row.display_name.clone().unwrap_or_default().into(),
            device(flavor).into(),
            counts(flavor).into(),
            format!("{}{per_device}", row.cpu).into(),
            format!("{}{per_device}", row.memory).into(),
            flavor.spec.limits.lifetime.map(format_duration).unwrap_or_default().into(),
            if row.maintenance.is_some() { "Maintenance".to_owned() } else { row.schedulable.clone() }.into(),
            if row.sudo { "yes" } else { "no" }.into(),
            row.price_per_device_hour.clone().unwrap_or_default().into(),
            row.maintenance.clone().unwrap_or_default().into(),
        ]);
    }
    table
}

fn counts(flavor: &DevServerFlavor) -> String {
    let Some(device) = &flavor.spec.device else { return String::new() };
    if device.counts.is_empty() {
        return format!("1-{}", device.per_node);
    }
    device.counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
