//! Requests on a session channel (RFC 4254, section 6): terminals, shells, commands and subsystems.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use russh::server::Session;
use russh::{ChannelId, Pty as PtyMode};
use tokio::process::Child;

use crate::boot_time;
use crate::serve::blocking::BlockingPool;
use crate::serve::context::Context;
use crate::serve::control;
use crate::serve::forward::agent_socket::AgentSocket;
use crate::serve::forward::listener::ForwardContext;
use crate::serve::session::account::Account;
use crate::serve::session::env::{ClientEnv, EnvInputs, session_env};
use crate::serve::session::motd::{self, motd};
use crate::serve::session::process::{self, CommandLine, SessionProcess, SessionStdio};
use crate::serve::session::prompt_command;
use crate::serve::session::pty::{Pty, WindowSize};
use crate::serve::session::{SessionChannel, SessionRequest, io};
use crate::serve::sftp::{self, symlink_order::SymlinkOrder};
use crate::serve::ssh::channel_writer::{ChannelClosed, ChannelWriter};
use crate::serve::ssh::handler::{Addresses, SshHandler};

const MAX_IMAGE_MOTD_BYTES: u64 = 16 << 10;

const NO_SHELL: &str =
    "error: this image has no shell, so commands cannot run; file transfer and port forwarding still work\n";

/// Exit codes as a shell reports them.
const EXIT_NOT_FOUND: u32 = 127;
const EXIT_NOT_EXECUTED: u32 = 126;

/// Numbers the sockets of forwarded agents.
static AGENT_SOCKET_SEQ: AtomicU64 = AtomicU64::new(0);

/// A shell or command that is about to be started.
struct SessionSpawn {
    ctx: Arc<Context>,
    addresses: Addresses,
    writer: Arc<ChannelWriter>,
    client_env: ClientEnv,
    pty: Option<(Arc<Pty>, SessionStdio)>,
    agent_socket: Option<AgentSocket>,
    process: Arc<SessionProcess>,
}

impl SshHandler {
    pub(super) fn open_pty(&mut self, id: ChannelId, term: &str, size: WindowSize, modes: &[(PtyMode, u32)]) -> bool {
        if !self.is_user() {
            return false;
        }
        let Some(channel) = self.channels.get_mut(&id).filter(|channel| channel.writer.is_some()) else {
            return false;
        };
        match Pty::open(term, size, modes) {
            Ok((pty, slave)) => {
                channel.pty = Some(Arc::new(pty));
                channel.pty_slave = Some(slave);
                true
            }
            Err(error) => {
                self.ctx.logger.log(format!("cannot open a terminal for {}: {error}", self.addresses.client));
                false
            }
        }
    }

    pub(super) async fn open_agent_socket(&mut self, id: ChannelId, forward: ForwardContext) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else { return false };
        let number = AGENT_SOCKET_SEQ.fetch_add(1, Ordering::Relaxed);
        match AgentSocket::open(forward, &self.ctx.state_dir, number).await {
            Ok(socket) => {
                channel.agent_socket = Some(socket);
                true
            }
            Err(error) => {
                self.ctx.logger.log(format!("cannot forward the agent of {}: {error}", self.addresses.client));
                false
            }
        }
    }

    /// Takes the writer of a channel, because only one request on a channel may start something.
    fn take_writer(&mut self, id: ChannelId, session: &Session) -> Option<(Arc<ChannelWriter>, &mut SessionChannel)> {
        let channel = self.channels.get_mut(&id)?;
        let write_half = channel.writer.take()?;
        let writer = ChannelWriter::new(write_half, session.handle(), self.buffers.clone())
            .with_client_version(session.remote_sshid());
        Some((Arc::new(writer), channel))
    }

    pub(super) fn start(&mut self, id: ChannelId, request: SessionRequest, session: &Session) -> bool {
        let (ctx, addresses) = (Arc::clone(&self.ctx), self.addresses);
        let processes = self.processes.clone();
        let Some((writer, channel)) = self.take_writer(id, session) else { return false };
        processes.add(&channel.process);
        let spawn = SessionSpawn {
            ctx,
            addresses,
            writer,
            client_env: std::mem::take(&mut channel.client_env),
            pty: channel.pty.clone().zip(channel.pty_slave.take().map(SessionStdio::Pty)),
            agent_socket: channel.agent_socket.take(),
            process: Arc::clone(&channel.process),
        };
        tokio::spawn(spawn.run(request));
        true
    }

    pub(super) fn start_sftp(&mut self, id: ChannelId, session: &Session) -> bool {
        let activity = Arc::clone(&self.ctx.activity);
        let symlink_order = SymlinkOrder::of_client(session.remote_sshid());
        let Some((writer, _)) = self.take_writer(id, session) else { return false };
        tokio::spawn(async move {
            let result = sftp::serve(&writer, Account::look_up().home, symlink_order, &activity).await;
            writer.send_exit_status(u32::from(result.is_err())).await;
            writer.send_eof().await;
            writer.close().await;
        });
        true
    }

    pub(super) fn start_control(&mut self, id: ChannelId, session: &Session) -> bool {
        let ctx = Arc::clone(&self.ctx);
        let Some((writer, _)) = self.take_writer(id, session) else { return false };
        tokio::spawn(async move {
            let result = control::serve(writer.stream(), ctx).await;
            writer.send_exit_status(u32::from(result.is_err())).await;
            writer.send_eof().await;
            writer.close().await;
        });
        true
    }
}

impl SessionSpawn {
    async fn run(self, request: SessionRequest) {
        let writer = Arc::clone(&self.writer);
        // An error means that the client is gone, so it cannot be reported.
        let _ = self.run_until_exit(&request).await;
        writer.close().await;
    }

    async fn run_until_exit(mut self, request: &SessionRequest) -> Result<(), ChannelClosed> {
        let mut account = Account::look_up();
        let is_interactive = self.pty.is_some() && *request == SessionRequest::Shell;
        let home = HomeState::check(&self.ctx.blocking, account.home.clone()).await;
        if home == HomeState::Unresponsive {
            let path = account.home.display();
            if !is_interactive {
                let error = format!("error: home directory {path} is not responding; command not executed\n");
                return exit_with_error(&self.writer, error, EXIT_NOT_EXECUTED).await;
            }
            let warning = format!("warning: home directory {path} is not responding; starting in /\r\n");
            self.writer.write(Bytes::from(warning)).await?;
            account.home = PathBuf::from("/");
        }
        let Some(shell) = account.shell.as_deref() else {
            return exit_with_error(&self.writer, NO_SHELL.to_owned(), EXIT_NOT_FOUND).await;
        };
        let env = self.env(&account, shell);
        if is_interactive {
            self.greet(home, &account.home).await?;
        }
        let (pty, stdio) = self.pty.take().unzip();
        let command = CommandLine::new(shell, request);
        let child = match process::start(&command, env, &account.home, stdio.unwrap_or(SessionStdio::Pipes)) {
            Ok(child) => child,
            Err(error) => {
                let error = format!("error: cannot execute {}: {error}\n", shell.display());
                return exit_with_error(&self.writer, error, EXIT_NOT_EXECUTED).await;
            }
        };
        self.copy_io(child, pty).await
    }

    fn env(&self, account: &Account, shell: &Path) -> Vec<(OsString, OsString)> {
        let pty = self.pty.as_ref().map(|(pty, _)| pty);
        let mut env = session_env(
            std::env::vars_os(),
            &EnvInputs {
                account,
                shell: Some(shell),
                client: self.addresses.client,
                server: self.addresses.server,
                pty: pty.map(|pty| (pty.term.as_str(), pty.path.as_os_str())),
                agent_socket: self.agent_socket.as_ref().map(AgentSocket::path),
                client_env: &self.client_env,
            },
        );
        if pty.is_some() {
            let inherited = std::env::var_os(prompt_command::VARIABLE);
            env.extend(prompt_command::variable(&self.ctx.state_dir, inherited.as_deref()));
        }
        env
    }

    /// Shows the message of the day and warns about a missing home.
    async fn greet(&self, home: HomeState, path: &Path) -> Result<(), ChannelClosed> {
        if home != (HomeState::Present { hush_login: true }) {
            let text = motd(&motd_inputs(&self.ctx)).replace('\n', "\r\n");
            if !text.is_empty() {
                self.writer.write(Bytes::from(text)).await?;
            }
        }
        if home == HomeState::Missing {
            let warning = format!("warning: home directory {} does not exist; starting in /\r\n", path.display());
            self.writer.write(Bytes::from(warning)).await?;
        }
        Ok(())
    }

    async fn copy_io(&self, child: Child, pty: Option<Arc<Pty>>) -> Result<(), ChannelClosed> {
        let Self { ctx, writer, process, .. } = self;
        process.set_started(&child);
        if let Some(pid) = child.id() {
            ctx.activity.add_session_leader(pid);
        }
        match pty {
            Some(pty) => io::copy_pty(child, process, pty, ctx.broadcast.subscribe(), writer, &ctx.activity).await,
            None => io::copy_pipes(child, process, writer, &ctx.activity).await,
        }
    }
}

/// The home directory as a session finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HomeState {
    Present {
        /// `.hushlogin` exists.
        hush_login: bool,
    },
    Missing,
    /// Its file system does not respond.
    Unresponsive,
}

impl HomeState {
    async fn check(blocking: &BlockingPool, home: PathBuf) -> Self {
        let check = move || {
            let hush_login = home.join(".hushlogin").exists();
            if home.is_dir() { Self::Present { hush_login } } else { Self::Missing }
        };
        blocking.run(check).await.unwrap_or(Self::Unresponsive)
    }
}

async fn exit_with_error(writer: &ChannelWriter, error: String, code: u32) -> Result<(), ChannelClosed> {
    writer.write_stderr(Bytes::from(error)).await?;
    writer.send_exit_status(code).await;
    writer.send_eof().await;
    Ok(())
}

fn motd_inputs(ctx: &Context) -> motd::Inputs {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut image_motd = String::new();
    if let Ok(file) = fs::File::open("/etc/motd") {
        // Ignored if it is not UTF-8.
        let _ = file.take(MAX_IMAGE_MOTD_BYTES).read_to_string(&mut image_motd);
    }
    motd::Inputs {
        server: ctx.identity.server.clone(),
        flavor: ctx.identity.flavor.clone(),
        gpus: gpu_models(),
        expires_in: ctx.lifecycle.deadline.remaining(boot_time::since_boot()),
        nodes: number("WORLD_SIZE").unwrap_or(1),
        rank: number("NODE_RANK").unwrap_or(0),
        image_motd,
    }
}

/// Returns the models of the GPUs from the driver; none without a driver.
fn gpu_models() -> Vec<String> {
    let Ok(gpus) = fs::read_dir("/proc/driver/nvidia/gpus") else { return Vec::new() };
    let model = |text: String| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned()));
    gpus.flatten().filter_map(|gpu| model(fs::read_to_string(gpu.path().join("information")).ok()?)).collect()
}
