//! `odc-keep-alive`: marks the server as active for a duration.

use std::process::ExitCode;

use odc_control::{Line, Request, duration};

use crate::args::StateDir;
use crate::cli::{client, print};

pub const EXAMPLES: &str = "\
Examples:
  odc-keep-alive                      for one hour
  odc-keep-alive 90m                  for one and a half hours
  odc-keep-alive 8h training run 17   for eight hours, with a reason that `odc-status` shows
  odc-keep-alive off                  cancel

Only the idle timeout is affected; the lifetime of the server stays the same. A later call replaces an earlier one. The
maximum is 24h. `odc-status` shows the current keep-alive.";

const OFF: &str = "off";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Duration such as 90m, 2h or 1h30m, or `off` to cancel
    #[arg(default_value = "1h", value_parser = parse_duration)]
    pub duration: u64,
    /// Reason, shown by `odc-status`
    #[arg(trailing_var_arg = true)]
    pub reason: Vec<String>,
    #[command(flatten)]
    pub state: StateDir,
}

fn parse_duration(text: &str) -> Result<u64, String> {
    if text == OFF {
        return Ok(0);
    }
    match duration::parse(text) {
        Ok(0) => Err(format!("duration must be greater than zero; use `{OFF}` to cancel")),
        Ok(seconds) => Ok(seconds),
        Err(error) => Err(format!("{error}; the reason follows the duration")),
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { duration, reason, state } = args;
    let reason = reason.join(" ");
    let reason = (!reason.is_empty()).then(|| Line::new(reason));
    let message = success_message(duration, reason.as_ref());
    client::request(state.state_dir.as_deref(), &Request::KeepAlive { seconds: duration, reason })?;
    print(&message)
}

fn success_message(seconds: u64, reason: Option<&Line>) -> String {
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    match seconds {
        0 => "Cancelled keep-alive\n".to_owned(),
        _ => format!("Keep-alive set for {}{reason}\n", duration::format(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<(u64, String), String> {
        let parsed = TestCli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        Ok((parsed.args.duration, parsed.args.reason.join(" ")))
    }

    #[test]
    fn duration_and_reason_are_parsed() {
        for (line, seconds, reason) in [
            ("x", 3600, ""),
            ("x 90m", 5400, ""),
            ("x 1h30m training run --lr 3", 5400, "training run --lr 3"),
            ("x off", 0, ""),
        ] {
            assert_eq!(parse(line), Ok((seconds, reason.to_owned())), "{line}");
        }
    }

    #[test]
    fn invalid_duration_is_explained() {
        for (line, expect) in [
            (
                "x training",
                "invalid duration \"training\": expected a value such as 90m, 2h or 1h30m; the reason follows",
            ),
            ("x 5", "invalid duration \"5\""),
            ("x 0m", "use `off` to cancel"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn success_message_has_duration_and_reason() {
        assert_eq!(success_message(5400, Some(&"training".into())), "Keep-alive set for 1h30m (training)\n");
        assert_eq!(success_message(0, None), "Cancelled keep-alive\n");
    }
}
