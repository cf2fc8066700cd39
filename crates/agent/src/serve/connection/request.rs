//! What a client may start on a session channel.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use russh::server::Session as Link;
use russh::{ChannelId, Pty};

use crate::serve::account::Account;
use crate::serve::apart::Apart;
use crate::serve::connection::{Connection, Peer};
use crate::serve::control;
use crate::serve::forward::agent::Door;
use crate::serve::forward::listen::Client;
use crate::serve::motd::{self, motd};
use crate::serve::outbox::{Gone, Outbox};
use crate::serve::prompt;
use crate::serve::served::Served;
use crate::serve::session::environment::{self, Asked, environment};
use crate::serve::session::process::{Ends, Leader, Line};
use crate::serve::session::terminal::{Size, Terminal};
use crate::serve::session::{Session, Wanted, carry, process};
use crate::serve::sftp::{self, links::LinkOrder};

/// Of the image.
const LONGEST_MOTD: u64 = 16 << 10;

const NO_SHELL: &str =
    "this image has no shell, so no command can run here; copying files and forwarding ports still work\n";

/// As a shell says it.
const NOT_FOUND: u32 = 127;
const NOT_STARTED: u32 = 126;

static DOORS: AtomicU64 = AtomicU64::new(0);

/// All that it takes to run something for a client.
struct Run {
    served: Arc<Served>,
    peer: Peer,
    outbox: Arc<Outbox>,
    asked: Asked,
    terminal: Option<(Arc<Terminal>, Ends)>,
    agent: Option<Door>,
    leader: Arc<Leader>,
}

impl Connection {
    pub(super) fn open_terminal(&mut self, id: ChannelId, kind: &str, size: Size, modes: &[(Pty, u32)]) -> bool {
        if !self.is_user() {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.channel.is_some()) else {
            return false;
        };
        match Terminal::open(kind, size, modes) {
            Ok((terminal, line)) => {
                session.terminal = Some(Arc::new(terminal));
                session.line = Some(line);
                true
            }
            Err(error) => {
                self.served.journal.say(format!("no terminal for {}: {error}", self.peer.client));
                false
            }
        }
    }

    pub(super) async fn open_agent(&mut self, id: ChannelId, client: Client) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let number = DOORS.fetch_add(1, Ordering::Relaxed);
        match Door::open(client, self.served.directory.path(), number).await {
            Ok(door) => {
                session.agent = Some(door);
                true
            }
            Err(error) => {
                self.served.journal.say(format!("no key agent for {}: {error}", self.peer.client));
                false
            }
        }
    }

    /// One thing runs on a channel, and only once.
    fn take(&mut self, id: ChannelId, link: &Link) -> Option<(Arc<Outbox>, &mut Session)> {
        let session = self.sessions.get_mut(&id)?;
        let channel = session.channel.take()?;
        let outbox = Outbox::new(channel, link.handle(), self.inboxes.clone()).for_client(link.remote_sshid());
        Some((Arc::new(outbox), session))
    }

    pub(super) fn start(&mut self, id: ChannelId, wanted: Wanted, link: &Link) -> bool {
        let (served, peer) = (Arc::clone(&self.served), self.peer);
        let leaders = self.leaders.clone();
        let Some((outbox, session)) = self.take(id, link) else { return false };
        leaders.add(&session.leader);
        let run = Run {
            served,
            peer,
            outbox,
            asked: std::mem::take(&mut session.asked),
            terminal: session.terminal.clone().zip(session.line.take().map(Ends::Terminal)),
            agent: session.agent.take(),
            leader: Arc::clone(&session.leader),
        };
        tokio::spawn(run.run(wanted));
        true
    }

    pub(super) fn start_sftp(&mut self, id: ChannelId, link: &Link) -> bool {
        let activity = Arc::clone(&self.served.activity);
        let link_order = LinkOrder::of(link.remote_sshid());
        let Some((outbox, _)) = self.take(id, link) else { return false };
        tokio::spawn(async move {
            let code = match sftp::serve(&outbox, Account::look_up().home, link_order, &activity).await {
                Ok(()) => 0,
                Err(_) => 1,
            };
            outbox.exit_code(code).await;
            outbox.end().await;
            outbox.close().await;
        });
        true
    }

    pub(super) fn start_control(&mut self, id: ChannelId, link: &Link) -> bool {
        let served = Arc::clone(&self.served);
        let Some((outbox, _)) = self.take(id, link) else { return false };
        tokio::spawn(async move {
            let code = u32::from(control::serve(outbox.stream(), served).await.is_err());
            outbox.exit_code(code).await;
            outbox.end().await;
            outbox.close().await;
        });
        true
    }
}

impl Run {
    async fn run(self, wanted: Wanted) {
        let outbox = Arc::clone(&self.outbox);
        // If the client is gone, there is nobody to tell.
        let _ = self.until_end(&wanted).await;
        outbox.close().await;
    }

    async fn until_end(self, wanted: &Wanted) -> Result<(), Gone> {
        let Self { served, peer, outbox, asked, terminal, agent, leader } = self;
        let mut account = Account::look_up();
        let interactive = terminal.is_some() && *wanted == Wanted::Shell;
        let home = Home::look(&served.apart, account.home.clone()).await;
        if home == Home::Silent {
            let at = account.home.display();
            if !interactive {
                let why = format!("the home directory {at} does not answer; nothing was run\n");
                return fail(&outbox, why, NOT_STARTED).await;
            }
            let text = format!("the home directory {at} does not answer; starting in / and without it\r\n");
            outbox.send(Bytes::from(text)).await?;
            account.home = PathBuf::from("/");
        }
        let Some(shell) = account.shell.as_deref() else {
            return fail(&outbox, NO_SHELL.to_owned(), NOT_FOUND).await;
        };
        let (terminal, ends) = terminal.unzip();
        let ends = ends.unwrap_or(Ends::Pipes);
        let mut environment = environment(
            std::env::vars_os(),
            &environment::Facts {
                account: &account,
                shell: Some(shell),
                client: peer.client,
                server: peer.server,
                terminal: terminal.as_ref().map(|terminal| (terminal.kind.as_str(), terminal.file.as_os_str())),
                agent: agent.as_ref().map(Door::path),
                asked: &asked,
            },
        );
        if terminal.is_some() {
            let inherited = std::env::var_os(prompt::VARIABLE);
            environment.extend(prompt::variable(served.directory.path(), inherited.as_deref()));
        }
        if interactive && home != (Home::There { hushed: true }) {
            let text = motd(&facts(&served)).replace('\n', "\r\n");
            if !text.is_empty() {
                outbox.send(Bytes::from(text)).await?;
            }
        }
        if home == Home::Missing && interactive {
            let text = format!("there is no home directory {}; starting in /\r\n", account.home.display());
            outbox.send(Bytes::from(text)).await?;
        }
        let child = match process::start(&Line::new(shell, wanted), environment, &account.home, ends) {
            Ok(child) => child,
            Err(error) => return fail(&outbox, format!("{}: {error}\n", shell.display()), NOT_STARTED).await,
        };
        leader.started(&child);
        if let Some(pid) = child.id() {
            served.activity.session_process(pid);
        }
        match terminal {
            Some(terminal) => {
                let words = served.terminals.open();
                carry::terminal(child, &leader, terminal, words, &outbox, &served.activity).await
            }
            None => carry::pipes(child, &leader, &outbox, &served.activity).await,
        }
    }
}

/// The home directory, as a session finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// And whether people want to read nothing there.
    There {
        hushed: bool,
    },
    Missing,
    /// It is on a file system that does not answer.
    Silent,
}

impl Home {
    async fn look(apart: &Apart, home: PathBuf) -> Self {
        let look = move || {
            let hushed = home.join(".hushlogin").exists();
            if home.is_dir() { Self::There { hushed } } else { Self::Missing }
        };
        apart.run(look).await.unwrap_or(Self::Silent)
    }
}

async fn fail(outbox: &Outbox, why: String, code: u32) -> Result<(), Gone> {
    outbox.send_error(Bytes::from(why)).await?;
    outbox.exit_code(code).await;
    outbox.end().await;
    Ok(())
}

fn facts(served: &Served) -> motd::Facts {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut image = String::new();
    if let Ok(file) = fs::File::open("/etc/motd") {
        // What is not text is not for reading.
        let _ = file.take(LONGEST_MOTD).read_to_string(&mut image);
    }
    motd::Facts {
        server: served.identity.server.clone(),
        flavor: served.identity.flavor.clone(),
        gpus: gpus(),
        expires_in: served.expires_in(),
        nodes: number("WORLD_SIZE").unwrap_or(1),
        rank: number("NODE_RANK").unwrap_or(0),
        image,
    }
}

/// Their models, as the driver tells; nothing where there is none.
fn gpus() -> Vec<String> {
    let Ok(all) = fs::read_dir("/proc/driver/nvidia/gpus") else { return Vec::new() };
    let model = |text: String| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned()));
    all.flatten().filter_map(|gpu| model(fs::read_to_string(gpu.path().join("information")).ok()?)).collect()
}
