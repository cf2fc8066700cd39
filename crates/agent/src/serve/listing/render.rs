//! A listing as text: one entry on a line, its size first.

use std::ffi::OsStr;

use odc_control::Listing;

use crate::serve::listing::{DEPTH, Kind, Node};

/// Also whether something is missing for want of time or room. Rather than the end of a long listing, its depth is cut.
pub fn text(root: &Node) -> (Listing, bool) {
    for depth in (1..=DEPTH).rev() {
        let text = to_depth(root, depth);
        if text.len() <= Listing::MOST {
            return (Listing::from(text), depth < DEPTH || !root.is_counted());
        }
    }
    let text = to_depth(root, 1);
    // Whole lines only.
    let end = text[..text.floor_char_boundary(Listing::MOST)].rfind('\n').map_or(0, |end| end + 1);
    (Listing::new(&text[..end]), true)
}

fn to_depth(root: &Node, depth: usize) -> String {
    let mut text = String::new();
    line(&mut text, root, "./");
    children(&mut text, root, "", depth);
    text
}

fn children(text: &mut String, node: &Node, path: &str, depth: usize) {
    for child in &node.children {
        let name = plain(&child.name);
        match child.kind {
            Kind::Directory => {
                let path = format!("{path}{name}/");
                line(text, child, &path);
                if depth > 1 {
                    children(text, child, &path, depth - 1);
                }
            }
            Kind::File => line(text, child, &format!("{path}{name}")),
            Kind::Link => text.push_str(&format!("{:>9}  {path}{name} (link)\n", "-")),
            Kind::Mount => text.push_str(&format!("{:>9}  {path}{name}/ (another file system)\n", "-")),
            Kind::Special => text.push_str(&format!("{:>9}  {path}{name} (no file)\n", "-")),
        }
    }
    if node.more > 0 {
        text.push_str(&format!("{:>9}  {path}... and {} more\n", "", node.more));
    }
}

fn line(text: &mut String, node: &Node, path: &str) {
    let least = if node.is_counted() { "" } else { " (at least; not all was counted)" };
    text.push_str(&format!("{:>9}  {path}{least}\n", size(node.size())));
}

/// Names hold anything; a line holds no line break and nothing that a terminal obeys.
fn plain(name: &OsStr) -> String {
    name.to_string_lossy().chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Such as `17 B`, `1.5 GiB` or `120 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let unit = UNITS[usize::try_from(power).unwrap_or(1) - 1];
    let shift = 10 * power;
    let whole = bytes >> shift;
    // In 128 bits, because the rest of an exbibyte times ten needs more than 64.
    let tenth = (u128::from(bytes - (whole << shift)) * 10) >> shift;
    if whole < 10 { format!("{whole}.{tenth} {unit}") } else { format!("{whole} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_short() {
        for (bytes, expect) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 10, "10 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "15 EiB"),
        ] {
            assert_eq!(size(bytes), expect);
        }
    }
}
