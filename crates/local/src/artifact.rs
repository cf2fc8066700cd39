//! The executables a cloud runs, built from the Go modules in `local/` and kept outside the work tree.
//!
//! The modules' few files are part of this program, so it can build them anywhere. What is built lies under a name that
//! holds the hash of its sources: a new version is built once, and every clone on the machine shares it.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::progress::Progress;
use crate::settings::{KUBERNETES, Settings, Shape};

/// The lines of a failed build people need to see.
const TAIL_LINES: usize = 15;
const LONGEST_LINE: usize = 300;

/// A Go module and what is built from it.
struct Module {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    package: &'static str,
    /// What people are told while they wait.
    about: &'static str,
}

const KUBE: Module = Module {
    name: "kube",
    files: &[
        ("go.mod", include_str!("../../../local/kubernetes/go.mod")),
        ("go.sum", include_str!("../../../local/kubernetes/go.sum")),
        ("main.go", include_str!("../../../local/kubernetes/main.go")),
        ("internal/multicall/multicall.go", include_str!("../../../local/kubernetes/internal/multicall/multicall.go")),
    ],
    package: ".",
    about: "Kubernetes (about 7 minutes, once)",
};

const COREDNS: Module = Module {
    name: "coredns",
    files: &[
        ("go.mod", include_str!("../../../local/coredns/go.mod")),
        ("go.sum", include_str!("../../../local/coredns/go.sum")),
        ("main.go", include_str!("../../../local/coredns/main.go")),
    ],
    package: ".",
    about: "CoreDNS (about 2 minutes, once)",
};

const KWOK: Module = Module {
    name: "kwok",
    files: &[
        ("go.mod", include_str!("../../../local/kwok/go.mod")),
        ("go.sum", include_str!("../../../local/kwok/go.sum")),
    ],
    package: "sigs.k8s.io/kwok/cmd/kwok",
    about: "kwok, for simulated nodes (about 2 minutes, once)",
};

/// kwok's own descriptions of how nodes and pods behave; they come with its module.
const KWOK_STAGES: &str = "stages.yaml";

/// Where everything is, whether or not it has been built.
#[derive(Clone, Debug)]
pub struct Executables {
    pub kube: PathBuf,
    pub coredns: PathBuf,
    pub kwok: PathBuf,
    pub kwok_stages: PathBuf,
    pub gpu_plugin: PathBuf,
    pub agent: PathBuf,
    pub pause: PathBuf,
    pub odc: PathBuf,
    pub devctl: PathBuf,
    /// Tells one build of `odc` from another.
    pub build: String,
}

impl Executables {
    pub fn find() -> anyhow::Result<Self> {
        let own = own_executable()?;
        let beside = |name: &str| own.with_file_name(name);
        Ok(Self {
            kube: KUBE.executable()?,
            coredns: COREDNS.executable()?,
            kwok: KWOK.executable()?,
            kwok_stages: KWOK.executable()?.with_file_name(KWOK_STAGES),
            gpu_plugin: beside("odc-gpu-plugin"),
            agent: beside("odc-agent"),
            pause: beside("odc-pause"),
            devctl: beside("devctl"),
            build: own_build()?,
            odc: own,
        })
    }

    /// Builds what these settings need and is missing.
    pub async fn ensure(&self, settings: &Settings, progress: Progress) -> anyhow::Result<()> {
        match settings.shape() {
            Shape::Existing => return Ok(()),
            Shape::ControlPlane => self.ensure_control_plane(progress).await?,
            Shape::Full => {
                self.ensure_control_plane(progress).await?;
                COREDNS.ensure(progress).await?;
            }
        }
        if settings.simulated_nodes > 0 {
            KWOK.ensure(progress).await?;
        }
        Ok(())
    }

    pub async fn ensure_control_plane(&self, progress: Progress) -> anyhow::Result<()> {
        KUBE.ensure(progress).await
    }

    pub async fn ensure_all(&self, progress: Progress) -> anyhow::Result<()> {
        for module in [KUBE, COREDNS, KWOK] {
            module.ensure(progress).await?;
        }
        Ok(())
    }
}

impl Module {
    fn executable(&self) -> anyhow::Result<PathBuf> {
        Ok(self.directory()?.join(self.name))
    }

    fn directory(&self) -> anyhow::Result<PathBuf> {
        let mut hash = Sha256::new();
        for (path, text) in self.files {
            hash.update(path);
            hash.update([0]);
            hash.update(text);
            hash.update([0]);
        }
        for word in self.arguments() {
            hash.update(word);
            hash.update([0]);
        }
        let hash: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Ok(cache()?.join("executables").join(format!("{}-{hash}", self.name)))
    }

    fn arguments(&self) -> Vec<String> {
        let mut link = String::from("-s -w");
        if self.name == KUBE.name {
            let minor = KUBERNETES.trim_start_matches("v1.").split('.').next().unwrap_or_default();
            // What a release build would say of itself; the default of the commit is a template nobody filled in.
            let facts = [
                ("gitVersion", KUBERNETES),
                ("gitMajor", "1"),
                ("gitMinor", minor),
                ("gitTreeState", "clean"),
                ("gitCommit", ""),
            ];
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                for (name, value) in facts {
                    link += &format!(" -X {package}.{name}={value}");
                }
            }
        }
        vec!["build".into(), "-trimpath".into(), "-buildvcs=false".into(), "-ldflags".into(), link]
    }

    async fn ensure(&self, progress: Progress) -> anyhow::Result<()> {
        let directory = self.directory()?;
        if directory.exists() {
            return Ok(());
        }
        progress.step(&format!("building {}", self.about), self.build(&directory)).await
    }

    /// The directory gets its name when everything in it is complete, so an interrupted build leaves nothing half done.
    async fn build(&self, directory: &Path) -> anyhow::Result<()> {
        let parent = directory.parent().context("a cache has a parent")?;
        std::fs::create_dir_all(parent)?;
        let _lock = lock(parent, self.name).await?;
        if directory.exists() {
            return Ok(());
        }
        let work = directory.with_extension("building");
        if work.exists() {
            std::fs::remove_dir_all(&work)?;
        }
        for (path, text) in self.files {
            let path = work.join("source").join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(&work))?;
            std::fs::write(path, text)?;
        }
        let mut arguments = self.arguments();
        arguments.extend(["-o".into(), work.join(self.name).display().to_string(), self.package.into()]);
        go(self.name, &work.join("source"), &arguments).await?;
        if self.name == KWOK.name {
            write_stages(&work).await?;
        }
        std::fs::remove_dir_all(work.join("source"))?;
        std::fs::rename(&work, directory).with_context(|| format!("keeping {}", directory.display()))
    }
}

/// Puts kwok's stages for quick nodes and pods into one file.
async fn write_stages(work: &Path) -> anyhow::Result<()> {
    let list: Vec<String> = ["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"].map(Into::into).to_vec();
    let module = PathBuf::from(go("kwok", &work.join("source"), &list).await?.trim());
    let mut text = String::new();
    for file in KWOK_STAGE_FILES {
        let path = module.join("kustomize/stage").join(file);
        text += &std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        text += "\n---\n";
    }
    std::fs::write(work.join(KWOK_STAGES), text)?;
    Ok(())
}

const KWOK_STAGE_FILES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

async fn go(name: &str, directory: &Path, arguments: &[String]) -> anyhow::Result<String> {
    let logs = cache()?.join("logs");
    std::fs::create_dir_all(&logs)?;
    let log = logs.join(format!("build-{name}.log"));
    let output = tokio::process::Command::new("go")
        .args(arguments)
        .current_dir(directory)
        .env("CGO_ENABLED", "0")
        // The work tree's own flags must not reach in here.
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Problem::NoCommand { command: "go".into() }.into());
        }
        other => other.context("running go")?,
    };
    std::fs::write(&log, &output.stderr)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let tail = tail(&text, TAIL_LINES);
    Err(if unreachable(&text) {
        Problem::Unreachable { what: name.into(), tail }
    } else {
        Problem::Build { what: name.into(), tail, log }
    }
    .into())
}

/// What the network's failures look like in Go's own words.
fn unreachable(text: &str) -> bool {
    [
        "dial tcp",
        "no such host",
        "i/o timeout",
        "connection refused",
        "connection reset",
        "TLS handshake",
        "proxyconnect",
        "503 Service Unavailable",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}

/// The last lines with something in them, none longer than people read.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shorten = |line: &&str| match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => (*line).to_owned(),
    };
    all[all.len().saturating_sub(lines)..].iter().map(shorten).collect::<Vec<_>>().join("\n")
}

/// Held while one piece is being made; a second maker waits and then finds it done.
pub async fn lock(directory: &Path, name: &str) -> anyhow::Result<File> {
    let path = directory.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    tokio::task::spawn_blocking(move || file.lock().map(|()| file))
        .await?
        .with_context(|| format!("waiting for {}", path.display()))
}

/// What may be thrown away: built pieces, images, logs of builds.
pub fn cache() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|path| Path::new(path).is_absolute()) {
        Some(path) => PathBuf::from(path),
        None => home()?.join(".cache"),
    };
    Ok(base.join("odc"))
}

pub fn home() -> anyhow::Result<PathBuf> {
    let home: OsString = std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .context("HOME is not set; set it to your home directory")?;
    Ok(home.into())
}

fn own_executable() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("finding our own executable")?;
    // A rebuilt executable leaves the running one without a name.
    Ok(path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or(path.clone(), PathBuf::from))
}

/// Changes with every build of this program: a supervisor of another build is asked to hand over.
pub fn own_build() -> anyhow::Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let own = std::fs::metadata("/proc/self/exe").context("looking at our own executable")?;
    Ok(format!("{}-{:x}-{:x}", env!("CARGO_PKG_VERSION"), own.ino(), own.mtime_nsec() ^ own.mtime()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines_with_something_in_them() {
        assert_eq!(tail("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
        assert_eq!(tail(&"ä".repeat(301), 1), format!("{}…", "ä".repeat(300)));
    }

    #[test]
    fn a_lost_network_is_told_from_a_broken_build() {
        assert!(unreachable("go: github.com/x: Get \"…\": dial tcp: lookup …: no such host"));
        assert!(!unreachable("main.go:3:1: undefined: x"));
    }

    #[test]
    fn the_kubernetes_built_is_the_one_promised() {
        let (_, module) = KUBE.files[0];
        assert!(module.contains(&format!("k8s.io/kubernetes {KUBERNETES}")));
    }
}
