//! `devctl flavors`: what kinds of machines there are.

use kube::ResourceExt as _;
use odc_api::v1alpha1::{DevServerFlavor, Per, Privilege};
use serde::Serialize;

use super::avail::{device, schedulable};
use crate::app::App;
use crate::args::Flavors;
use crate::failure::Result;
use crate::output::{Column, Table};
use crate::reserve::flavor_named;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flavor {
    name: String,
    display_name: Option<String>,
    default: bool,
    /// What Kubernetes calls its devices; null without.
    device: Option<String>,
    model: Option<String>,
    device_memory: Option<String>,
    devices_per_node: Option<u32>,
    /// The counts that can be asked for; empty for any.
    counts: Vec<u32>,
    cpu: String,
    memory: String,
    /// What the amounts are for: Device or Server.
    per: &'static str,
    max_lifetime: Option<String>,
    max_extension: Option<String>,
    max_total: Option<String>,
    /// Whether people are root in its servers.
    sudo: bool,
    price_per_device_hour: Option<String>,
    schedulable: String,
    maintenance: Option<String>,
    spot: bool,
}

pub async fn run(app: &App, args: Flavors) -> Result<()> {
    let flavors = app.backend.flavors().await?;
    app.talk.step("reading flavors");
    let shown: Vec<&DevServerFlavor> = if args.flavors.is_empty() {
        flavors.iter().collect()
    } else {
        args.flavors.iter().map(|name| flavor_named(name, &flavors)).collect::<Result<_>>()?
    };
    print(app, &shown)
}

pub fn print(app: &App, flavors: &[&DevServerFlavor]) -> Result<()> {
    let views: Vec<Flavor> = flavors.iter().map(|flavor| view(flavor)).collect();
    if views.is_empty() && !app.out.structured() {
        app.talk.say("There are no flavors. An administrator makes them: devctl admin flavor apply.");
        return Ok(());
    }
    app.out.show(&views, || views.iter().map(|view| view.name.clone()).collect(), || table(flavors))
}

fn view(flavor: &DevServerFlavor) -> Flavor {
    let spec = &flavor.spec;
    let device = spec.device.as_ref();
    Flavor {
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
        maintenance: spec.maintenance.as_ref().map(|pause| pause.message.clone()),
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
        Column::new("ABOUT").spare(7).elastic(),
        Column::new("GPU").spare(2),
        Column::new("COUNTS").spare(3),
        Column::new("CPU").spare(5),
        Column::new("MEMORY").spare(5),
        Column::new("AT MOST").spare(6),
        Column::new("STARTS NOW").spare(1),
        Column::new("SUDO").wide(),
        Column::new("PRICE/H").wide(),
        Column::new("MAINTENANCE").wide(),
    ]);
    for flavor in flavors {
        let view = view(flavor);
        let each = if flavor.spec.resources.per == Per::Device { " each" } else { "" };
        let star = if view.default { " (default)" } else { "" };
        table.row([
            format!("{}{star}", view.name).into(),
            view.display_name.clone().unwrap_or_default().into(),
            device(flavor).into(),
            counts(flavor).into(),
            format!("{}{each}", view.cpu).into(),
            format!("{}{each}", view.memory).into(),
            view.max_lifetime.clone().unwrap_or_default().into(),
            if view.maintenance.is_some() { "Maintenance".to_owned() } else { view.schedulable.clone() }.into(),
            if view.sudo { "yes" } else { "no" }.into(),
            view.price_per_device_hour.clone().unwrap_or_default().into(),
            view.maintenance.clone().unwrap_or_default().into(),
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
