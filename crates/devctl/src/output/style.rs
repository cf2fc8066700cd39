//! Colours: few, and never the only sign of anything.

use std::sync::LazyLock;

use anstyle::{AnsiColor, Style};
use odc_api::v1alpha1::Phase;

pub const PLAIN: Style = Style::new();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GREEN: Style = AnsiColor::Green.on_default();
pub const YELLOW: Style = AnsiColor::Yellow.on_default();
pub const RED: Style = AnsiColor::Red.on_default();
pub const BLUE: Style = AnsiColor::Blue.on_default();

pub fn of_phase(phase: Option<Phase>) -> Style {
    match phase {
        Some(Phase::Running) => GREEN,
        Some(Phase::Pending | Phase::Building | Phase::Queued | Phase::Starting) => YELLOW,
        Some(Phase::Hibernating | Phase::Hibernated) => BLUE,
        Some(Phase::Failed) => RED,
        Some(Phase::Stopping | Phase::Expired | Phase::Cancelled) => DIM,
        None => PLAIN,
    }
}

/// A text between the marks of its colour.
pub fn painted(style: Style, text: &str) -> String {
    if style == PLAIN || text.is_empty() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

static MARKS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let begin = [BOLD, DIM, GREEN, YELLOW, RED, BLUE].map(|style| style.render().to_string());
    begin.into_iter().chain([format!("{RED:#}")]).collect()
});

/// The mark of one of our colours at the beginning of a text, or the one that ends it.
pub fn mark_at(text: &str) -> Option<&str> {
    let mark = MARKS.iter().find(|mark| text.starts_with(mark.as_str()))?;
    Some(&text[..mark.len()])
}
