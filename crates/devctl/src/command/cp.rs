//! `devctl cp`: files to and from servers, with OpenSSH's scp.

use tokio::process::Command;

use crate::app::App;
use crate::args::Cp;
use crate::failure::{Failure, Result};
use crate::remote;
use crate::ssh::arrive::{Arrived, Patience, arrive};
use crate::ssh::client;
use crate::ssh::route::{Wishes, route};

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End<'a> {
    Here(&'a str),
    There { server: &'a str, path: &'a str },
}

pub async fn run(app: &App, args: Cp) -> Result<()> {
    let ends: Vec<End> = args.from.iter().chain([&args.to]).map(|text| end(text)).collect();
    let servers = ends.iter().filter(|end| matches!(end, End::There { .. })).count();
    if servers == 0 {
        return Err(Failure::usage("neither end is in a server")
            .advise("Write NAME:PATH for a file in a server, such as box:results."));
    }
    let patience = Patience { no_wake: args.sleeping.no_wake, limit: None };
    let (mut words, mut last) = (Vec::new(), None);
    for end in &ends {
        words.push(match end {
            // A name that begins with a dash, or has a colon in it, is still a name.
            End::Here(path) if path.starts_with('/') => (*path).to_owned(),
            End::Here(path) => format!("./{path}"),
            End::There { server, path } => {
                let there: Arrived = arrive(app, Some(server), 0, patience).await?;
                let alias = there.host.alias();
                there.pin(&alias)?;
                last = Some(there);
                format!("{}@{alias}:{path}", app.login())
            }
        });
    }
    let wishes = Wishes { forward_agent: Some(false), identity: None };
    let route = route(&app.global, &app.settings, app.place(), &wishes)?;
    let mut command = Command::new("scp");
    // Between two servers it goes through this machine: neither has a way to the other, nor your keys.
    command.args(route.options(None)).arg("-r").args(args.preserve.then_some("-p")).args((servers > 1).then_some("-3"));
    command.args(app.talk.quiet().then_some("-q")).arg("--").args(words);
    let code = client::code(client::run(command).await?);
    match (code, last) {
        (0, _) => Ok(()),
        (255, Some(there)) => Err(remote::why_not(app, &there).await.unwrap_or(Failure::remote(1))),
        // scp has said which file and why.
        _ => Err(Failure::remote(1)),
    }
}

/// As scp reads it: a colon before any slash makes it a server's.
fn end(text: &str) -> End<'_> {
    match text.split_once(':') {
        Some((server, path)) if !server.is_empty() && !server.contains('/') => End::There { server, path },
        _ => End::Here(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_a_slash_names_a_server() {
        assert_eq!(end("box:data/a"), End::There { server: "box", path: "data/a" });
        assert_eq!(end("box:"), End::There { server: "box", path: "" });
        for here in ["file", "./a:b", "/a:b", ":x", "-r"] {
            assert_eq!(end(here), End::Here(here));
        }
    }
}
