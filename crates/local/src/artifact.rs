//! The executables of a local cluster, built from the Go modules in `local/` into the user's cache.
//!
//! The source files of the modules are embedded, so no work tree is needed. The cache path contains a hash of the sources:
//! each version is built once and shared by all clones on the machine.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::progress::Progress;
use crate::settings::{KUBERNETES_VERSION, Mode, Settings};

/// Lines of a failed build that are shown in the error.
const TAIL_LINES: usize = 15;
const MAX_LINE_CHARS: usize = 300;

/// A Go module with one executable.
struct Module {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    package: &'static str,
    /// Programs of other modules that are part of the executable: name and `package main`.
    programs: &'static [(&'static str, &'static str)],
    data: Option<ModuleData>,
    /// Shown in the progress output.
    description: &'static str,
}

/// Files of a required module that are joined into one file beside the executable.
struct ModuleData {
    module: &'static str,
    files: &'static [&'static str],
    output: &'static str,
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
    programs: &[],
    data: None,
    description: "Kubernetes (about 7 minutes, once)",
};

const COREDNS: Module = Module {
    name: "coredns",
    files: &[
        ("go.mod", include_str!("../../../local/coredns/go.mod")),
        ("go.sum", include_str!("../../../local/coredns/go.sum")),
        ("main.go", include_str!("../../../local/coredns/main.go")),
    ],
    package: ".",
    programs: &[],
    data: None,
    description: "CoreDNS (about 2 minutes, once)",
};

const KWOK: Module = Module {
    name: "kwok",
    files: &[
        ("go.mod", include_str!("../../../local/kwok/go.mod")),
        ("go.sum", include_str!("../../../local/kwok/go.sum")),
    ],
    package: "sigs.k8s.io/kwok/cmd/kwok",
    programs: &[],
    // Stages for fast nodes and pods.
    data: Some(ModuleData {
        module: "sigs.k8s.io/kwok",
        files: &[
            "kustomize/stage/node/fast/node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml",
        ],
        output: KWOK_STAGES,
    }),
    description: "kwok, for simulated nodes (about 2 minutes, once)",
};

const CSI_SANITY: Module = Module {
    name: "csi-sanity",
    files: &[
        ("go.mod", include_str!("../../../local/csi/go.mod")),
        ("go.sum", include_str!("../../../local/csi/go.sum")),
    ],
    package: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
    programs: &[],
    data: None,
    description: "the CSI sanity suite (about 1 minute, once)",
};

const CSI_SIDECARS: Module = Module {
    name: "csi-sidecars",
    files: &[
        ("go.mod", include_str!("../../../local/csi/go.mod")),
        ("go.sum", include_str!("../../../local/csi/go.sum")),
        ("main.go", include_str!("../../../local/csi/_sidecars/main.go")),
        ("internal/flags/flags.go", include_str!("../../../local/csi/_sidecars/internal/flags/flags.go")),
        ("internal/multicall/multicall.go", include_str!("../../../local/kubernetes/internal/multicall/multicall.go")),
    ],
    package: ".",
    programs: &[
        ("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner"),
        ("csi-resizer", "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer"),
        ("csi-snapshotter", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"),
        ("snapshot-controller", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"),
    ],
    data: Some(ModuleData {
        module: "github.com/kubernetes-csi/external-snapshotter/client/v8",
        files: &[
            "config/crd/snapshot.storage.k8s.io_volumesnapshotclasses.yaml",
            "config/crd/snapshot.storage.k8s.io_volumesnapshotcontents.yaml",
            "config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml",
        ],
        output: SNAPSHOT_CRDS,
    }),
    description: "the CSI sidecars (about 3 minutes, once)",
};

/// Stages of nodes and pods for kwok.
const KWOK_STAGES: &str = "stages.yaml";
/// CRDs of volume snapshots.
const SNAPSHOT_CRDS: &str = "crds.yaml";

/// Paths of all executables, which may not be built yet.
#[derive(Clone, Debug)]
pub struct Executables {
    pub kube: PathBuf,
    pub coredns: PathBuf,
    pub kwok: PathBuf,
    pub kwok_stages: PathBuf,
    pub csi_sanity: PathBuf,
    pub csi_sidecars: PathBuf,
    pub snapshot_crds: PathBuf,
    pub csi: PathBuf,
    pub fake_gpu_plugin: PathBuf,
    pub agent: PathBuf,
    pub pause: PathBuf,
    pub odc: PathBuf,
    pub devctl: PathBuf,
    /// Identifies this build of `odc`.
    pub build_id: String,
}

impl Executables {
    pub fn find() -> anyhow::Result<Self> {
        let odc = current_executable()?;
        let sibling = |name: &str| odc.with_file_name(name);
        Ok(Self {
            kube: KUBE.executable()?,
            coredns: COREDNS.executable()?,
            kwok: KWOK.executable()?,
            kwok_stages: KWOK.executable()?.with_file_name(KWOK_STAGES),
            csi_sanity: CSI_SANITY.executable()?,
            csi_sidecars: CSI_SIDECARS.executable()?,
            snapshot_crds: CSI_SIDECARS.executable()?.with_file_name(SNAPSHOT_CRDS),
            csi: sibling("odc-csi"),
            fake_gpu_plugin: sibling("odc-fake-gpu-plugin"),
            agent: sibling("odc-agent"),
            pause: sibling("odc-pause"),
            devctl: sibling("devctl"),
            build_id: build_id()?,
            odc,
        })
    }

    /// Builds the missing executables that the settings require.
    pub async fn ensure(&self, settings: &Settings, progress: Progress) -> anyhow::Result<()> {
        match settings.mode() {
            Mode::External => return Ok(()),
            Mode::ControlPlane => self.ensure_control_plane(progress).await?,
            Mode::Full => {
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

    pub async fn ensure_csi_sanity(&self, progress: Progress) -> anyhow::Result<()> {
        CSI_SANITY.ensure(progress).await
    }

    pub async fn ensure_csi_sidecars(&self, progress: Progress) -> anyhow::Result<()> {
        CSI_SIDECARS.ensure(progress).await
    }

    pub async fn ensure_all(&self, progress: Progress) -> anyhow::Result<()> {
        for module in [KUBE, COREDNS, KWOK, CSI_SIDECARS] {
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
        for argument in self.arguments() {
            hash.update(argument);
            hash.update([0]);
        }
        for (name, package) in self.programs {
            hash.update(name);
            hash.update(package);
        }
        let hash: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Ok(cache_dir()?.join("executables").join(format!("{}-{hash}", self.name)))
    }

    fn arguments(&self) -> Vec<String> {
        let mut ldflags = String::from("-s -w");
        if self.name == KUBE.name {
            let minor = KUBERNETES_VERSION.trim_start_matches("v1.").split('.').next().unwrap_or_default();
            // As in a release build. The default of gitCommit is an unexpanded template.
            let variables = [
                ("gitVersion", KUBERNETES_VERSION),
                ("gitMajor", "1"),
                ("gitMinor", minor),
                ("gitTreeState", "clean"),
                ("gitCommit", ""),
            ];
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                for (name, value) in variables {
                    ldflags += &format!(" -X {package}.{name}={value}");
                }
            }
        }
        vec!["build".into(), "-trimpath".into(), "-buildvcs=false".into(), "-ldflags".into(), ldflags]
    }

    async fn ensure(&self, progress: Progress) -> anyhow::Result<()> {
        let directory = self.directory()?;
        if directory.exists() {
            return Ok(());
        }
        progress.step(&format!("building {}", self.description), self.build(&directory)).await
    }

    /// Builds in a temporary directory that is renamed when it is complete.
    async fn build(&self, directory: &Path) -> anyhow::Result<()> {
        let parent = directory.parent().context("the directory is below the cache")?;
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
        for (name, package) in self.programs {
            self.copy_program(&work.join("source"), name, package).await?;
        }
        let mut arguments = self.arguments();
        arguments.extend(["-o".into(), work.join(self.name).display().to_string(), self.package.into()]);
        run_go(self.name, &work.join("source"), &arguments).await?;
        if let Some(data) = &self.data {
            self.join_data(&work, data).await?;
        }
        std::fs::remove_dir_all(work.join("source"))?;
        std::fs::rename(&work, directory).with_context(|| format!("renaming to {}", directory.display()))
    }

    /// Copies a `package main` of a required module to `internal/NAME`, where its main function is exported. Its flags are
    /// registered in a set of their own: the file with the call sorts first, and is therefore initialized first.
    async fn copy_program(&self, source: &Path, name: &str, package: &str) -> anyhow::Result<()> {
        let list: Vec<String> = ["list", "-f", "{{.Dir}}", package].map(Into::into).to_vec();
        let upstream = PathBuf::from(run_go(self.name, source, &list).await?.trim());
        let target = source.join("internal").join(name);
        std::fs::create_dir_all(&target)?;
        let mut has_main = false;
        for entry in std::fs::read_dir(&upstream).with_context(|| format!("reading {}", upstream.display()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "go") && !stem.ends_with("_test") {
                let (text, is_main) = export_main(&std::fs::read_to_string(&path)?);
                std::fs::write(target.join(format!("{stem}.go")), text)?;
                has_main |= is_main;
            }
        }
        anyhow::ensure!(has_main, "{package} has no main function");
        let flags = format!(
            "package sidecar\n\nimport \"odc.dev/local/csi/internal/flags\"\n\nvar _ = flags.New(\"{name}\")\n"
        );
        std::fs::write(target.join("0_flags.go"), flags)?;
        Ok(())
    }

    /// Joins YAML files of a required module into one.
    async fn join_data(&self, work: &Path, data: &ModuleData) -> anyhow::Result<()> {
        let list: Vec<String> = ["list", "-m", "-f", "{{.Dir}}", data.module].map(Into::into).to_vec();
        let module = PathBuf::from(run_go(self.name, &work.join("source"), &list).await?.trim());
        let mut text = String::new();
        for file in data.files {
            let path = module.join(file);
            text += &std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            text += "\n---\n";
        }
        std::fs::write(work.join(data.output), text)?;
        Ok(())
    }
}

/// Turns a source file of a `package main` into one of a package that another program can import. Returns the text, and
/// whether it contains the main function.
fn export_main(text: &str) -> (String, bool) {
    let package = text.replacen("\npackage main\n", "\npackage sidecar\n", 1);
    let exported = package.replacen("\nfunc main() {\n", "\nfunc Main() {\n", 1);
    let is_exported = exported != package;
    (exported, is_exported)
}

async fn run_go(name: &str, directory: &Path, arguments: &[String]) -> anyhow::Result<String> {
    let logs = cache_dir()?.join("logs");
    std::fs::create_dir_all(&logs)?;
    let log = logs.join(format!("build-{name}.log"));
    let output = tokio::process::Command::new("go")
        .args(arguments)
        .current_dir(directory)
        .env("CGO_ENABLED", "0")
        // Override the flags of the user's environment.
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::CommandNotFound { command: "go".into() }.into());
        }
        other => other.context("running go")?,
    };
    std::fs::write(&log, &output.stderr)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let tail = tail(&text, TAIL_LINES);
    Err(if is_network_failure(&text) {
        Error::RegistryUnreachable { target: name.into(), tail }
    } else {
        Error::Build { target: name.into(), tail, log }
    }
    .into())
}

/// Reports whether the output of Go contains a network error.
fn is_network_failure(text: &str) -> bool {
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
    .any(|message| text.contains(message))
}

/// Returns the last non-empty lines, each truncated to [`MAX_LINE_CHARS`].
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shorten = |line: &&str| match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => (*line).to_owned(),
    };
    all[all.len().saturating_sub(lines)..].iter().map(shorten).collect::<Vec<_>>().join("\n")
}

/// Locks `NAME.lock` in the directory, so that concurrent builds of one artifact wait for each other.
pub async fn lock(directory: &Path, name: &str) -> anyhow::Result<File> {
    let path = directory.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    tokio::task::spawn_blocking(move || file.lock().map(|()| file))
        .await?
        .with_context(|| format!("waiting for {}", path.display()))
}

/// Returns the directory of built executables, images and build logs, which may be deleted at any time.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|path| Path::new(path).is_absolute()) {
        Some(path) => PathBuf::from(path),
        None => home_dir()?.join(".cache"),
    };
    Ok(base.join("odc"))
}

pub fn home_dir() -> anyhow::Result<PathBuf> {
    let home: OsString = std::env::var_os("HOME").filter(|home| !home.is_empty()).context("HOME is not set")?;
    Ok(home.into())
}

fn current_executable() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("finding the path of this executable")?;
    // The kernel appends this suffix after the executable was rebuilt.
    Ok(path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or(path.clone(), PathBuf::from))
}

/// Identifies the build of this process. A supervisor of another build has to hand over.
pub fn build_id() -> anyhow::Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata("/proc/self/exe").context("reading the metadata of this executable")?;
    Ok(format!("{}-{:x}-{:x}", env!("CARGO_PKG_VERSION"), metadata.ino(), metadata.mtime_nsec() ^ metadata.mtime()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_returns_the_last_non_empty_lines() {
        assert_eq!(tail("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
        assert_eq!(tail(&"ä".repeat(301), 1), format!("{}…", "ä".repeat(300)));
    }

    #[test]
    fn network_failures_are_distinguished_from_build_failures() {
        assert!(is_network_failure("go: github.com/x: Get \"…\": dial tcp: lookup …: no such host"));
        assert!(!is_network_failure("main.go:3:1: undefined: x"));
    }

    #[test]
    fn main_function_is_exported_once() {
        let (text, is_main) = export_main("// A\npackage main\n\nfunc main() {\n}\n");
        assert_eq!((text.as_str(), is_main), ("// A\npackage sidecar\n\nfunc Main() {\n}\n", true));
        assert!(!export_main("// A\npackage main\n\nfunc mainly() {\n}\n").1);
    }

    #[test]
    fn kubernetes_module_has_the_declared_version() {
        let (_, module) = KUBE.files[0];
        assert!(module.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
    }
}
