//! One connection of a client, and the connection to the server that belongs to it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::dbfault::message::{self, Message, Request};
use crate::dbfault::plan::{Action, Moment};
use crate::dbfault::trace::{Outcome, Statement, starts_with};
use crate::dbfault::{Gate, Proxy};

/// Serves a connection until one side closes it. Errors are ignored, since the client sees them as well.
pub async fn run(client: TcpStream, proxy: Arc<Proxy>) {
    let Ok(server) = TcpStream::connect(proxy.upstream).await else { return };
    let number = {
        let mut state = proxy.state.lock();
        state.sessions += 1;
        state.sessions
    };
    let gate = proxy.gate.subscribe();
    let mut session = Session { number, client, server, proxy, gate, exchange: Exchange::default() };
    if let Ok(End::Reset) = session.relay().await {
        // Without lingering, the kernel sends a reset.
        let _ = session.client.set_zero_linger();
    }
}

struct Session {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    proxy: Arc<Proxy>,
    gate: watch::Receiver<Gate>,
    exchange: Exchange,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// The messages between two `ReadyForQuery`.
#[derive(Default)]
struct Exchange {
    /// SQL by name of the prepared statement, and name of the statement by portal.
    statements: HashMap<String, String>,
    portals: HashMap<String, String>,
    /// Messages of the client that the server has not received yet.
    pending: Vec<Bytes>,
    /// SQL that is executed in this exchange.
    executed: Vec<String>,
    /// Index in the trace of the statements that the server executes now.
    sent: Vec<usize>,
    /// An action after the answer.
    after: Option<Action>,
    /// The answer, as long as it is withheld.
    answer: Vec<Bytes>,
    has_failed: bool,
    is_in_transaction: bool,
}

impl Session {
    async fn relay(&mut self) -> anyhow::Result<End> {
        // Answers are short, and clients wait for them.
        self.client.set_nodelay(true)?;
        self.server.set_nodelay(true)?;
        let Gate { mut stalls, resets, .. } = *self.gate.borrow();
        let (mut from_client, mut from_server) = (BytesMut::new(), BytesMut::new());
        let mut has_started = false;
        loop {
            tokio::select! {
                read = self.client.read_buf(&mut from_client) => if read? == 0 { return Ok(End::Closed) },
                read = self.server.read_buf(&mut from_server) => if read? == 0 { return Ok(End::Closed) },
                changed = self.gate.changed() => {
                    changed?;
                    let gate = *self.gate.borrow();
                    if gate.resets > resets { return Ok(End::Reset) }
                    if gate.stalls > stalls {
                        stalls = gate.stalls;
                        self.wait_released().await?;
                    }
                }
            }
            while let Some(message) = message::take(&mut from_client, has_started)? {
                let request = message.request()?;
                if request == Request::Encryption {
                    self.client.write_all(b"N").await?;
                    continue;
                }
                has_started = true;
                if let Some(end) = self.handle_request(message, request).await? {
                    return Ok(end);
                }
            }
            while let Some(message) = message::take(&mut from_server, true)? {
                if let Some(end) = self.handle_answer(message).await? {
                    return Ok(end);
                }
            }
        }
    }

    /// Collects the messages of an exchange and forwards them at its end.
    async fn handle_request(&mut self, message: Message, request: Request) -> anyhow::Result<Option<End>> {
        let exchange = &mut self.exchange;
        exchange.pending.push(message.bytes);
        let ends_exchange = match request {
            Request::Parse { statement, sql } => {
                exchange.statements.insert(statement, sql);
                false
            }
            Request::Bind { portal, statement } => {
                exchange.portals.insert(portal, statement);
                false
            }
            Request::Execute { portal } => {
                let statement = exchange.portals.get(&portal).and_then(|name| exchange.statements.get(name));
                exchange.executed.push(statement.cloned().unwrap_or_default());
                false
            }
            Request::Query { sql } => {
                exchange.executed.push(sql);
                true
            }
            Request::Part => false,
            Request::Sync | Request::Startup | Request::Encryption | Request::Other => true,
        };
        if !ends_exchange {
            return Ok(None);
        }
        match self.count_statements() {
            Some((Moment::Before, Action::Stall)) => self.wait_released().await?,
            Some((Moment::Before, action)) => return Ok(Some(end(action))),
            Some((Moment::After, action)) => self.exchange.after = Some(action),
            None => {}
        }
        for bytes in std::mem::take(&mut self.exchange.pending) {
            self.server.write_all(&bytes).await?;
        }
        Ok(None)
    }

    /// Records the statements of the exchange. Returns the action of the first fault that fires.
    fn count_statements(&mut self) -> Option<(Moment, Action)> {
        let mut fired = None;
        let mut state = self.proxy.state.lock();
        for sql in std::mem::take(&mut self.exchange.executed) {
            let commits = if self.exchange.is_in_transaction {
                starts_with(&sql, &["COMMIT", "END"])
            } else {
                !starts_with(&sql, &["BEGIN", "START"])
            };
            let statement = Statement { connection: self.number, sql, commits, outcome: Outcome::Unknown };
            fired = fired.or(state.triggers.count(&statement));
            self.exchange.sent.push(state.trace.len());
            state.trace.push(statement);
        }
        drop(state);
        if fired.is_some() {
            self.proxy.fired.send_modify(|count| *count += 1);
        }
        fired
    }

    /// Forwards a message of the server, unless the answer is withheld until it is complete.
    async fn handle_answer(&mut self, message: Message) -> anyhow::Result<Option<End>> {
        self.exchange.has_failed |= message.is_error();
        let ready_state = message.ready_state();
        self.exchange.answer.push(message.bytes);
        if let Some(state) = ready_state {
            self.finish_exchange(state);
            match self.exchange.after.take() {
                Some(Action::Stall) => self.wait_released().await?,
                Some(action) => return Ok(Some(end(action))),
                None => {}
            }
        } else if self.exchange.after.is_some() {
            return Ok(None);
        }
        for bytes in std::mem::take(&mut self.exchange.answer) {
            self.client.write_all(&bytes).await?;
        }
        Ok(None)
    }

    fn finish_exchange(&mut self, state: u8) {
        let exchange = &mut self.exchange;
        exchange.is_in_transaction = state != b'I';
        let outcome = if std::mem::take(&mut exchange.has_failed) { Outcome::Failed } else { Outcome::Succeeded };
        let mut state = self.proxy.state.lock();
        for index in exchange.sent.drain(..) {
            state.trace[index].outcome = outcome;
        }
    }

    async fn wait_released(&mut self) -> anyhow::Result<()> {
        let Gate { releases, resets, .. } = *self.gate.borrow();
        let gate = *self.gate.wait_for(|gate| gate.releases > releases || gate.resets > resets).await?;
        anyhow::ensure!(gate.resets == resets, "the connection is reset");
        Ok(())
    }
}

fn end(action: Action) -> End {
    match action {
        Action::Reset => End::Reset,
        Action::Cut | Action::Stall => End::Closed,
    }
}
