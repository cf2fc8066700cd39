//! `odc-keep-alive`: the user's word that the server is in use.

use std::process::ExitCode;

use odc_control::{Line, Request, span};

use crate::args::StateDir;
use crate::helper::{ask::ask, print};

pub const EXAMPLES: &str = "\
Examples:
  odc-keep-alive                      for an hour
  odc-keep-alive 90m                  for an hour and a half
  odc-keep-alive 8h training run 17   for eight hours, and everybody can see why
  odc-keep-alive off                  not any longer

It only keeps the server from being stopped for idleness; its lifetime ends as before. A later call replaces an earlier
one. The longest time is 24h. `odc-status` shows what holds.";

const OFF: &str = "off";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long, such as 90m, 2h or 1h30m; `off` ends it
    #[arg(default_value = "1h", value_parser = duration)]
    pub duration: u64,
    /// Why, for whoever looks
    #[arg(trailing_var_arg = true)]
    pub reason: Vec<String>,
    #[command(flatten)]
    pub state: StateDir,
}

fn duration(text: &str) -> Result<u64, String> {
    if text == OFF {
        return Ok(0);
    }
    match span::parse(text) {
        Ok(0) => Err(format!("that is no time at all; to end it, say `{OFF}`")),
        Ok(seconds) => Ok(seconds),
        Err(error) => Err(format!("{error}; a reason comes after it")),
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { duration, reason, state } = args;
    let reason = reason.join(" ");
    let reason = (!reason.is_empty()).then(|| Line::new(reason));
    let said = said(duration, reason.as_ref());
    ask(state.state_dir.as_deref(), &Request::KeepAlive { seconds: duration, reason })?;
    print(&said)
}

fn said(seconds: u64, reason: Option<&Line>) -> String {
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    match seconds {
        0 => "The server is no longer kept alive; what you do counts as use.\n".to_owned(),
        _ => format!("The server counts as used for {}{reason}.\n", span::text(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    fn typed(line: &str) -> Result<(u64, String), String> {
        let parsed = Typed::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        Ok((parsed.args.duration, parsed.args.reason.join(" ")))
    }

    #[test]
    fn a_duration_and_a_reason_are_read() {
        for (line, seconds, reason) in [
            ("x", 3600, ""),
            ("x 90m", 5400, ""),
            ("x 1h30m training run --lr 3", 5400, "training run --lr 3"),
            ("x off", 0, ""),
        ] {
            assert_eq!(typed(line), Ok((seconds, reason.to_owned())), "{line}");
        }
    }

    #[test]
    fn a_slip_is_explained() {
        for (line, expect) in [
            ("x training", "\"training\" is not a duration; write it like 90m, 2h or 1h30m; a reason comes after it"),
            ("x 5", "\"5\" is not a duration"),
            ("x 0m", "to end it, say `off`"),
        ] {
            let error = typed(line).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn what_was_done_is_said() {
        assert_eq!(said(5400, Some(&"training".into())), "The server counts as used for 1 h 30 min: training.\n");
        assert!(said(0, None).contains("no longer"));
    }
}
