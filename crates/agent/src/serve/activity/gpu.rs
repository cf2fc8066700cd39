//! GPU utilization from `nvidia-smi`, if the image has it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use odc_control::Text;
use tokio::process::Command;
use tokio::time::timeout;

/// Of one GPU. Drivers report one or two percent for an idle GPU.
const BUSY_THRESHOLD_PERCENT: u32 = 5;

/// A faulty driver may never respond.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_OUTPUT_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuActivity {
    pub percent: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub busy_at: Option<Duration>,
    pub error: Option<Text>,
}

/// The load of all GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Of the busiest GPU; absent if the driver does not report it, as for MIG instances.
    pub percent: Option<u32>,
    pub memory_bytes: u64,
}

impl GpuActivity {
    /// Returns the activity after a new query.
    pub fn update(previous: Option<Self>, load: Result<Load, String>, now: Duration) -> Self {
        let busy_at = previous.and_then(|previous| previous.busy_at);
        match load {
            Ok(Load { percent, memory_bytes }) => Self {
                percent,
                memory_bytes: Some(memory_bytes),
                busy_at: if percent.is_some_and(|percent| percent >= BUSY_THRESHOLD_PERCENT) {
                    Some(now)
                } else {
                    busy_at
                },
                error: percent.is_none().then(|| Text::new("nvidia-smi does not report GPU utilization")),
            },
            Err(error) => Self { busy_at, error: Some(Text::new(error)), ..Self::default() },
        }
    }
}

/// Runs `nvidia-smi`. The process is killed if the future is dropped.
pub async fn query(program: &Path) -> Result<Load, String> {
    let mut command = Command::new(program);
    command.args(["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(QUERY_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{}: {error}", program.display())),
        Err(_) => return Err(format!("nvidia-smi did not respond within {}s", QUERY_TIMEOUT.as_secs())),
    };
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stdout).trim().lines().next().unwrap_or_default().to_owned();
        return Err(format!("nvidia-smi failed ({}): {message}", output.status));
    }
    parse(&output.stdout[..output.stdout.len().min(MAX_OUTPUT_BYTES)])
}

/// Parses one line per GPU: utilization in percent, memory in MiB.
pub fn parse(output: &[u8]) -> Result<Load, String> {
    let output = String::from_utf8_lossy(output);
    let mut load: Option<Load> = None;
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let Some((percent, memory)) = line.split_once(',') else {
            let line: String = line.chars().take(80).collect();
            return Err(format!("unexpected output of nvidia-smi: {line}"));
        };
        let percent: Option<u32> = percent.trim().parse().ok();
        let mebibytes: u64 = memory.trim().parse().unwrap_or_default();
        let sum = load.get_or_insert(Load { percent: None, memory_bytes: 0 });
        sum.percent = sum.percent.max(percent);
        sum.memory_bytes = sum.memory_bytes.saturating_add(mebibytes.saturating_mul(1 << 20));
    }
    load.ok_or_else(|| "nvidia-smi reports no GPU".to_owned())
}

/// Searches for each query, because the user may install it later.
pub fn find_nvidia_smi(path: Option<&OsStr>) -> Option<std::path::PathBuf> {
    crate::image_programs::which("nvidia-smi", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn output_of_nvidia_smi_is_parsed() {
        for (output, percent, mebibytes) in [
            ("0, 3\n", Some(0), 3),
            ("0, 3\n97, 80000\n1, 0\n", Some(97), 80_003),
            ("[N/A], 512\n", None, 512),
            ("[N/A], [N/A]\n12, 1\n", Some(12), 1),
        ] {
            assert_eq!(parse(output.as_bytes()), Ok(Load { percent, memory_bytes: mebibytes << 20 }), "{output}");
        }
        assert_eq!(parse(b""), Err("nvidia-smi reports no GPU".to_owned()));
        assert!(parse(b"No devices were found\n").unwrap_err().contains("No devices were found"));
    }

    #[test]
    fn utilization_is_activity_and_memory_is_not() {
        let at = Duration::from_secs;
        let load = |percent| Ok(Load { percent, memory_bytes: 80 << 30 });
        let activity = GpuActivity::update(None, load(Some(4)), at(10));
        assert_eq!((activity.busy_at, activity.percent), (None, Some(4)));
        let activity = GpuActivity::update(Some(activity), load(Some(5)), at(40));
        assert_eq!(activity.busy_at, Some(at(40)));
        let activity = GpuActivity::update(Some(activity), Err("gone".to_owned()), at(70));
        assert_eq!((activity.busy_at, activity.error.as_deref(), activity.percent), (Some(at(40)), Some("gone"), None));
        let activity = GpuActivity::update(Some(activity), load(None), at(100));
        assert!(activity.error.is_some() && activity.busy_at == Some(at(40)));
    }

    fn stub(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("nvidia-smi");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, program)
    }

    #[tokio::test]
    async fn nvidia_smi_is_executed() {
        let (dir, _) = stub(
            r#"test "$*" = "--query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits" && echo "55, 1024""#,
        );
        let found = find_nvidia_smi(Some(dir.path().as_os_str())).unwrap();
        assert_eq!(query(&found).await, Ok(Load { percent: Some(55), memory_bytes: 1 << 30 }));
        let (_dir, broken) = stub("echo 'NVIDIA-SMI has failed'; exit 9");
        let error = query(&broken).await.unwrap_err();
        assert!(error.contains("exit status: 9") && error.contains("NVIDIA-SMI has failed"), "{error}");
        assert_eq!(find_nvidia_smi(Some(OsStr::new("/nowhere"))), None);
    }

    proptest! {
        #[test]
        fn arbitrary_output_does_not_panic(output in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9,\\[\\]N/A \n]{0,100}") {
            let _ = parse(&output);
            let _ = parse(text.as_bytes());
        }
    }
}
