use odc_control::{Access, IdleAction, IdlePolicy, JupyterState, NoticeKind, Signals, read_reply, write_request};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::*;
use crate::serve::activity::Activity;
use crate::serve::blocking::BlockingPool;
use crate::serve::context::Identity;
use crate::serve::expiry_and_idle::{Lifecycle, LifecycleConfig};
use crate::serve::notify::broadcast::TerminalBroadcast;

const CA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";

struct Fixture {
    _directory: TempDir,
    ctx: Arc<Context>,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let (state, home) = (directory.path().join("state"), directory.path().join("home"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    let server = "ada-1".to_owned();
    let config = LifecycleConfig { state_dir: state.clone(), home, pre_stop: None, server, jupyter_port: 1 };
    let name = str::to_owned;
    let ctx = Context {
        activity: Arc::new(Activity::new()),
        access: crate::serve::auth::access_list::Access::load(&state, &[], &state, None).0,
        broadcast: TerminalBroadcast::default(),
        identity: Identity {
            server: name("ada-1"),
            owner: name("ada"),
            flavor: name("h100"),
            uid: name("u"),
            banner: name(""),
        },
        state_dir: state,
        logger: Arc::default(),
        lifecycle: Lifecycle::new(config, &Arc::default()),
        blocking: BlockingPool::default(),
    };
    Fixture { _directory: directory, ctx: Arc::new(ctx) }
}

struct Client {
    stream: DuplexStream,
    decoder: LineDecoder,
    server: JoinHandle<io::Result<()>>,
}

impl Client {
    fn new(fixture: &Fixture) -> Self {
        let (stream, server_stream) = duplex(1 << 10);
        let server = tokio::spawn(serve(server_stream, Arc::clone(&fixture.ctx)));
        Self { stream, decoder: LineDecoder::default(), server }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn receive(&mut self) -> Option<Reply> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(line) = self.decoder.next_line().unwrap() {
                return Some(read_reply(&line).unwrap());
            }
            match self.stream.read(&mut chunk).await.unwrap() {
                0 => return None,
                count => self.decoder.push(&chunk[..count]),
            }
        }
    }

    async fn request(&mut self, request: Request) -> Reply {
        self.send(&write_request(&request).unwrap()).await;
        self.receive().await.unwrap()
    }

    async fn close(self) {
        drop(self.stream);
        self.server.await.unwrap().unwrap();
    }
}

/// Reports whether an event occurred during the test, which may be slow on a busy machine.
fn is_recent(seconds_ago: Option<u64>) -> bool {
    seconds_ago.is_some_and(|ago| ago < 60)
}

#[tokio::test]
async fn every_request_gets_a_reply() {
    let fixture = fixture();
    let mut client = Client::new(&fixture);
    fixture.ctx.activity.record_terminal_input();
    let Reply::Signals(signals) = client.request(Request::Signals).await else { panic!() };
    assert!(is_recent(signals.terminal_input.last_seen_seconds_ago));

    let idle = Some(IdlePolicy { limit_seconds: 1800, action: IdleAction::Hibernate });
    assert_eq!(client.request(Request::SetDeadline { remaining_seconds: Some(7200), idle }).await, Reply::Done);
    let without_ca = Access { keys: vec![CA.to_owned()], ..Access::default() };
    let Reply::Refused { reason } = client.request(Request::SetAccess(without_ca)).await else { panic!() };
    assert!(reason.starts_with("rejected access list: it contains no usable control CA"), "{reason}");
    let access = Access { keys: vec!["nonsense".to_owned()], control_cas: vec![CA.to_owned()], ..Access::default() };
    let Reply::AccessSet { invalid } = client.request(Request::SetAccess(access.clone())).await else { panic!() };
    assert!(invalid[0].starts_with("key in line 1: "), "{invalid:?}");
    let expect = crate::serve::auth::access_list::AuthorizedKeys::parse(&access, None);
    assert_eq!(*fixture.ctx.access.authorized_keys(), expect);
    assert_eq!(client.request(Request::SetIdleStatus { status: "in use".into() }).await, Reply::Done);
    let hello = Request::Notify { kind: NoticeKind::Message, text: Some("hello".into()) };
    assert_eq!(client.request(hello).await, Reply::Done);
    let reason = Some("training".into());
    assert_eq!(client.request(Request::KeepAlive { seconds: 3600, reason }).await, Reply::Done);
    assert_eq!(client.request(Request::Heartbeat).await, Reply::Done);

    let Reply::Status(status) = client.request(Request::Status).await else { panic!() };
    assert_eq!((status.server.as_str(), status.flavor.as_str(), status.idle), ("ada-1", "h100", idle));
    assert!(matches!(status.remaining_seconds, Some(7100..=7200)));
    assert_eq!(status.idle_status.as_deref(), Some("in use"));
    assert!(is_recent(status.idle_status_seconds_ago));
    assert_eq!(status.notices, ["hello".into()]);
    assert_eq!(status.jupyter.state, JupyterState::Off);
    let Signals { keep_alive, heartbeat, .. } = status.signals;
    assert_eq!(keep_alive.unwrap().reason.as_deref(), Some("training"));
    assert!(is_recent(heartbeat.last_seen_seconds_ago));

    assert!(matches!(client.request(Request::Stats).await, Reply::Stats(_)));
    let Reply::Quiesced(quiesced) = client.request(Request::Quiesce { within_seconds: 60 }).await else { panic!() };
    assert!(quiesced.synced && quiesced.pre_stop.is_none());
    assert_eq!(quiesced.home.unwrap().files, 0);
    let Reply::Flushed(flushed) = client.request(Request::Flush { within_seconds: 60 }).await else { panic!() };
    assert!(flushed.synced && flushed.home.is_some());
    client.close().await;
}

#[tokio::test]
async fn invalid_requests_are_refused_and_the_stream_continues() {
    let fixture = fixture();
    let mut client = Client::new(&fixture);
    client.send(b"hello\n{\"version\":9}\n{\"version\":1,\"request\":{\"type\":\"dance\"}}\n").await;
    for expect in ["malformed message", "unsupported version 9", "unknown request \"dance\""] {
        let Some(Reply::Refused { reason }) = client.receive().await else { panic!() };
        assert!(reason.starts_with(expect), "{reason}");
    }
    let day = 24 * 3600;
    assert_eq!(client.request(Request::KeepAlive { seconds: day, reason: None }).await, Reply::Done);
    let Reply::Refused { reason } = client.request(Request::KeepAlive { seconds: day + 1, reason: None }).await else {
        panic!()
    };
    assert_eq!(reason.as_str(), "keep-alive is limited to 24h");
    client.close().await;
}

#[tokio::test]
async fn overlong_line_ends_the_stream() {
    let fixture = fixture();
    let mut client = Client::new(&fixture);
    let long = vec![b'x'; odc_control::MAX_LINE_BYTES + 1];
    client.send(&long).await;
    assert!(matches!(client.receive().await, Some(Reply::Refused { .. })));
    assert_eq!(client.receive().await, None);
    client.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn truncated_request_is_ignored() {
    let fixture = fixture();
    let mut client = Client::new(&fixture);
    client.send(br#"{"version":1,"request":{"type":"sta"#).await;
    client.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_input_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = fixture();
            let mut client = Client::new(&fixture);
            client.send(&bytes).await;
            client.send(b"\n").await;
            assert!(matches!(client.receive().await, Some(Reply::Refused { .. })));
            client.close().await;
        });
    }
}
