//! Colors. They only emphasize; the text alone carries the meaning.

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
pub const CYAN: Style = AnsiColor::Cyan.on_default();

pub fn phase_style(phase: Option<Phase>) -> Style {
    match phase {
        Some(Phase::Running) => GREEN,
        Some(Phase::Pending | Phase::Building | Phase::Queued | Phase::Starting) => YELLOW,
        Some(Phase::Hibernating | Phase::Hibernated) => BLUE,
        Some(Phase::Failed) => RED,
        Some(Phase::Stopping | Phase::Expired | Phase::Cancelled) => DIM,
        None => PLAIN,
    }
}

/// Wraps text in the SGR sequences of a style.
pub fn paint(style: Style, text: &str) -> String {
    if style == PLAIN || text.is_empty() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// The SGR sequences that devctl prints.
static OWN_SGR: LazyLock<Vec<String>> = LazyLock::new(|| {
    let start = [BOLD, DIM, GREEN, YELLOW, RED, BLUE, CYAN].map(|style| style.render().to_string());
    start.into_iter().chain([format!("{RED:#}")]).collect()
});

/// Returns the SGR sequence at the start of a text, if it is one of devctl's own.
pub fn own_sgr_prefix(text: &str) -> Option<&str> {
    let sgr = OWN_SGR.iter().find(|sgr| text.starts_with(sgr.as_str()))?;
    Some(&text[..sgr.len()])
}
