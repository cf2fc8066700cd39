//! `devctl disk files`: the listing of the content of a restore point.

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{DiskArg, resolve};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary, Listing, Point};
use crate::output::duration::{format_clock, format_since};
use crate::output::json::disk::FilesJson;
use crate::output::size::format_bytes;
use crate::output::{Column, Table};
use crate::resolve::join_names;

#[derive(Args, Debug)]
pub struct FilesArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    /// Restore point [default: the newest one with a listing]
    #[arg(value_name = "POINT", add = clap_complete::ArgValueCompleter::new(crate::completion::listed_point))]
    pub point: Option<String>,
}

pub async fn run(ctx: &ClusterContext, args: &FilesArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let point = select(&disk, args.point.as_deref())?;
    // It may have been replaced by one of a newer point since the disk was read.
    let compressed =
        ctx.client.listing(&disk.name_any(), &point.name).await?.ok_or_else(|| without_listing(&disk, Some(point)))?;
    let listing = Listing::parse(&point.name, &compressed)?;
    if !ctx.out.structured() {
        ctx.ui.info(header(point, &listing, clock::now()));
    }
    let json = FilesJson::new(point, &listing);
    let paths = || listing.entries.iter().map(|entry| entry.path.clone()).collect();
    ctx.out.show(&json, paths, || table(&listing))?;
    for warning in warnings(&listing) {
        ctx.ui.warn(warning);
    }
    Ok(())
}

/// Returns the named point, or the newest one with a listing.
fn select<'a>(disk: &'a DiskSummary, typed: Option<&str>) -> Result<&'a Point> {
    match typed {
        Some(typed) => {
            let point = disk::find_point(disk, typed)?;
            if point.listing.is_some() { Ok(point) } else { Err(without_listing(disk, Some(point))) }
        }
        None => listed_points(disk).next().ok_or_else(|| without_listing(disk, None)),
    }
}

fn listed_points(disk: &DiskSummary) -> impl Iterator<Item = &Point> {
    disk::points(disk).iter().filter(|point| point.listing.is_some())
}

/// Names the points that have a listing, and the command that opens any point.
fn without_listing(disk: &DiskSummary, point: Option<&Point>) -> Error {
    let name = disk.name_any();
    let others = listed_points(disk).map(|point| point.name.as_str());
    let others: Vec<&str> = others.filter(|other| point.is_none_or(|point| point.name != *other)).collect();
    let newest = point.or_else(|| disk::points(disk).first()).map(|point| point.name.as_str());
    let browse = newest.map(|point| format!("run `devctl disk browse {name} {point}` to open it"));
    let message = match point {
        Some(point) => format!("restore point {} has no listing", point.name),
        None => format!("disk {name} has no restore point with a listing"),
    };
    let hint = match (others.is_empty(), browse) {
        (false, Some(browse)) => format!("these restore points have one: {}; {browse}", join_names(&others)),
        (true, Some(browse)) => format!("one is stored when a server stops; {browse}"),
        (_, None) => format!("one is stored when a server that uses disk {name} stops"),
    };
    Error::not_found(message).with_hint(hint)
}

fn header(point: &Point, listing: &Listing, now: Timestamp) -> String {
    let taken = point.at.as_ref().map(|at| {
        let (clock, age) = (format_clock(at.0, now), format_since(at.0, now));
        format!(", taken {clock} ({age} ago)")
    });
    let (used, files) = (format_bytes(listing.used_bytes), listing.files);
    let unit = if files == 1 { "file" } else { "files" };
    format!("Restore point {}{}: {used} in {files} {unit}", point.name, taken.unwrap_or_default())
}

fn table(listing: &Listing) -> Table {
    let mut table = Table::new([Column::new("SIZE"), Column::new("FILES"), Column::new("PATH")]);
    for entry in &listing.entries {
        table.row([format_bytes(entry.bytes).into(), entry.files.to_string().into(), entry.path.as_str().into()]);
    }
    table
}

fn warnings(listing: &Listing) -> impl Iterator<Item = String> {
    let incomplete = listing.incomplete.then(|| "the listing is incomplete; sizes are lower limits".to_owned());
    let omitted = (listing.omitted > 0).then(|| {
        let unit = if listing.omitted == 1 { "entry is" } else { "entries are" };
        format!("{} smaller {unit} not listed", listing.omitted)
    });
    incomplete.into_iter().chain(omitted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Kind;
    use crate::model::disk::Entry;

    fn disk(listed: &[bool]) -> DiskSummary {
        let point = |(index, is_listed): (usize, &bool)| {
            let listing = is_listed.then(|| json!({"used": "3277Mi", "files": 2}));
            json!({"name": format!("home-{index}"), "at": "1970-01-01T00:00:00Z", "reason": "Stop",
                "consistency": "Clean", "listing": listing})
        };
        let points: Vec<_> = listed.iter().enumerate().map(point).collect();
        let mut disk = DiskSummary::test("home", "20Gi");
        disk.status = serde_json::from_value(json!({"points": points})).unwrap();
        disk
    }

    fn listing() -> Listing {
        let entry = |path: &str, bytes, files| Entry { path: path.into(), bytes, files };
        let entries = vec![entry("src/", 3 << 30, 1), entry("work", 4096, 1)];
        Listing { used_bytes: 3 << 30, files: 2, incomplete: false, omitted: 0, entries }
    }

    #[test]
    fn newest_point_with_a_listing_is_the_default() {
        let disk = disk(&[false, true, true]);
        assert_eq!(select(&disk, None).unwrap().name, "home-1");
        assert_eq!(select(&disk, Some("home-2")).unwrap().name, "home-2");
    }

    #[test]
    fn point_without_a_listing_names_those_with_one() {
        let error = select(&disk(&[false, true, true]), Some("home-0")).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::NotFound, "restore point home-0 has no listing"));
        let hint = error.hint.unwrap();
        assert!(hint.starts_with("these restore points have one: home-1"), "{hint}");
        assert!(hint.contains("`devctl disk browse home home-0`"), "{hint}");
        let error = select(&disk(&[false]), None).unwrap_err();
        assert_eq!(error.message, "disk home has no restore point with a listing");
        assert!(error.hint.unwrap().contains("`devctl disk browse home home-0`"));
        assert!(select(&disk(&[]), None).unwrap_err().hint.unwrap().contains("stops"));
        assert_eq!(select(&disk(&[true]), Some("other")).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn table_has_sizes_with_a_unit() {
        let text = anstream::adapter::strip_str(&table(&listing()).render(false, true, None)).to_string();
        assert_eq!(text, "SIZE    FILES   PATH\n3.0Gi   1       src/\n4.0Ki   1       work\n");
        let disk = disk(&[true]);
        let header = header(select(&disk, None).unwrap(), &listing(), Timestamp::from_second(3600).unwrap());
        assert!(
            header.starts_with("Restore point home-0, taken ") && header.ends_with("ago): 3.0Gi in 2 files"),
            "{header}"
        );
    }

    #[test]
    fn missing_entries_are_reported() {
        assert_eq!(warnings(&listing()).count(), 0);
        let cut = Listing { incomplete: true, omitted: 7, ..listing() };
        let texts: Vec<String> = warnings(&cut).collect();
        assert_eq!(texts, ["the listing is incomplete; sizes are lower limits", "7 smaller entries are not listed"]);
    }
}
