//! Whether GPUs compute, as `nvidia-smi` tells where there is one.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use odc_control::Text;
use tokio::process::Command;
use tokio::time::timeout;

/// Of one GPU. Drivers show a percent or two for nothing.
const THRESHOLD_PERCENT: u32 = 5;

/// A driver in trouble never answers.
const LIMIT: Duration = Duration::from_secs(10);

/// For sixteen GPUs, hundreds of times over.
const LONGEST_ANSWER: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub percent: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub busy_at: Option<Duration>,
    pub error: Option<Text>,
}

/// All GPUs at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Of the busiest one; absent where the driver does not say, as for slices of a GPU.
    pub percent: Option<u32>,
    pub memory_bytes: u64,
}

impl Seen {
    /// What is known after another look.
    pub fn after(before: Option<Self>, load: Result<Load, String>, now: Duration) -> Self {
        let busy_before = before.and_then(|before| before.busy_at);
        match load {
            Ok(Load { percent, memory_bytes }) => Self {
                percent,
                memory_bytes: Some(memory_bytes),
                busy_at: if percent.is_some_and(|percent| percent >= THRESHOLD_PERCENT) {
                    Some(now)
                } else {
                    busy_before
                },
                error: percent.is_none().then(|| Text::new("nvidia-smi does not tell how busy the GPUs are")),
            },
            Err(error) => Self { busy_at: busy_before, error: Some(Text::new(error)), ..Self::default() },
        }
    }
}

/// Runs it. The process ends with the wait for it.
pub async fn ask(program: &Path) -> Result<Load, String> {
    let mut command = Command::new(program);
    command.args(["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{}: {error}", program.display())),
        Err(_) => return Err(format!("nvidia-smi gave no answer within {} s", LIMIT.as_secs())),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout).trim().lines().next().unwrap_or_default().to_owned();
        return Err(format!("nvidia-smi failed ({}): {said}", output.status));
    }
    parse(&output.stdout[..output.stdout.len().min(LONGEST_ANSWER)])
}

/// One line for each GPU: percent, mebibytes.
pub fn parse(answer: &[u8]) -> Result<Load, String> {
    let answer = String::from_utf8_lossy(answer);
    let mut load: Option<Load> = None;
    for line in answer.lines().filter(|line| !line.trim().is_empty()) {
        let Some((percent, memory)) = line.split_once(',') else {
            let line: String = line.chars().take(80).collect();
            return Err(format!("nvidia-smi says something unknown: {line}"));
        };
        let percent: Option<u32> = percent.trim().parse().ok();
        let mebibytes: u64 = memory.trim().parse().unwrap_or_default();
        let sum = load.get_or_insert(Load { percent: None, memory_bytes: 0 });
        sum.percent = sum.percent.max(percent);
        sum.memory_bytes = sum.memory_bytes.saturating_add(mebibytes.saturating_mul(1 << 20));
    }
    load.ok_or_else(|| "nvidia-smi knows of no GPU".to_owned())
}

/// Where it is. Looked for each time, because a path may be set up later, and it costs nothing beside the call.
pub fn program(path: Option<&OsStr>) -> Option<std::path::PathBuf> {
    crate::shell::find("nvidia-smi", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn answers_of_nvidia_smi_are_read() {
        for (answer, percent, mebibytes) in [
            ("0, 3\n", Some(0), 3),
            ("0, 3\n97, 80000\n1, 0\n", Some(97), 80_003),
            ("[N/A], 512\n", None, 512),
            ("[N/A], [N/A]\n12, 1\n", Some(12), 1),
        ] {
            assert_eq!(parse(answer.as_bytes()), Ok(Load { percent, memory_bytes: mebibytes << 20 }), "{answer}");
        }
        assert_eq!(parse(b""), Err("nvidia-smi knows of no GPU".to_owned()));
        assert!(parse(b"No devices were found\n").unwrap_err().contains("No devices were found"));
    }

    #[test]
    fn use_counts_and_memory_does_not() {
        let at = Duration::from_secs;
        let load = |percent| Ok(Load { percent, memory_bytes: 80 << 30 });
        let seen = Seen::after(None, load(Some(4)), at(10));
        assert_eq!((seen.busy_at, seen.percent), (None, Some(4)));
        let seen = Seen::after(Some(seen), load(Some(5)), at(40));
        assert_eq!(seen.busy_at, Some(at(40)));
        let seen = Seen::after(Some(seen), Err("gone".to_owned()), at(70));
        assert_eq!((seen.busy_at, seen.error.as_deref(), seen.percent), (Some(at(40)), Some("gone"), None));
        let seen = Seen::after(Some(seen), load(None), at(100));
        assert!(seen.error.is_some() && seen.busy_at == Some(at(40)));
    }

    fn stub(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("nvidia-smi");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (place, program)
    }

    #[tokio::test]
    async fn a_stub_is_asked_as_the_real_one() {
        let (place, _) = stub(
            r#"test "$*" = "--query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits" && echo "55, 1024""#,
        );
        let found = program(Some(place.path().as_os_str())).unwrap();
        assert_eq!(ask(&found).await, Ok(Load { percent: Some(55), memory_bytes: 1 << 30 }));
        let (_place, broken) = stub("echo 'NVIDIA-SMI has failed'; exit 9");
        let error = ask(&broken).await.unwrap_err();
        assert!(error.contains("exit status: 9") && error.contains("NVIDIA-SMI has failed"), "{error}");
        assert_eq!(program(Some(OsStr::new("/nowhere"))), None);
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(answer in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9,\\[\\]N/A \n]{0,100}") {
            let _ = parse(&answer);
            let _ = parse(text.as_bytes());
        }
    }
}
