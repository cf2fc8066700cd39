//! Renders a home listing as text: one entry per line, its size first.

use odc_control::Listing;

use crate::serve::quiesce::home_listing::{Entry, Kind, MAX_DEPTH};
use crate::text_format::{sanitize_line, size};

/// Returns the text, and whether it is incomplete. A text that would be too long is rendered with fewer levels.
pub fn render(root: &Entry) -> (Listing, bool) {
    for depth in (1..=MAX_DEPTH).rev() {
        let text = render_levels(root, depth);
        if text.len() <= Listing::MAX_BYTES {
            return (Listing::from(text), depth < MAX_DEPTH || !root.is_complete());
        }
    }
    let text = render_levels(root, 1);
    // Truncates at a line.
    let end = text[..text.floor_char_boundary(Listing::MAX_BYTES)].rfind('\n').map_or(0, |end| end + 1);
    (Listing::new(&text[..end]), true)
}

fn render_levels(root: &Entry, depth: usize) -> String {
    let mut text = String::new();
    push_entry(&mut text, root, "./");
    push_children(&mut text, root, "", depth);
    text
}

fn push_children(text: &mut String, parent: &Entry, path: &str, depth: usize) {
    for child in &parent.children {
        let name = sanitize_line(&child.name.to_string_lossy());
        match child.kind {
            Kind::Directory => {
                let path = format!("{path}{name}/");
                push_entry(text, child, &path);
                if depth > 1 {
                    push_children(text, child, &path, depth - 1);
                }
            }
            Kind::File => push_entry(text, child, &format!("{path}{name}")),
            Kind::Link => text.push_str(&format!("{:>9}  {path}{name} (link)\n", "-")),
            Kind::Mount => text.push_str(&format!("{:>9}  {path}{name}/ (another file system)\n", "-")),
            Kind::Special => text.push_str(&format!("{:>9}  {path}{name} (special file)\n", "-")),
        }
    }
    if parent.omitted > 0 {
        text.push_str(&format!("{:>9}  {path}... and {} more\n", "", parent.omitted));
    }
}

fn push_entry(text: &mut String, entry: &Entry, path: &str) {
    let incomplete = if entry.is_complete() { "" } else { " (incomplete)" };
    text.push_str(&format!("{:>9}  {path}{incomplete}\n", size(entry.size())));
}
