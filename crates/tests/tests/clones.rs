//! Two clones of the repository that share the cache of `./dev`.

#![expect(clippy::unwrap_used, reason = "a clone that cannot be prepared fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const DEPENDENCY: &str = "vendored-dependency";

/// Cargo takes a file that is older than the last build as built. A clone with older files than another clone's build
/// must still compile and run its own code, and reuse only the dependencies.
#[test]
fn clone_builds_its_own_code_and_reuses_dependencies() {
    let directory = tempfile::tempdir().unwrap();
    let vendor = directory.path().join("vendor");
    write(&vendor.join(DEPENDENCY).join("Cargo.toml"), &manifest(DEPENDENCY, ""));
    write(&vendor.join(DEPENDENCY).join("src/lib.rs"), "pub const SEPARATOR: &str = \": \";\n");
    write(&vendor.join(DEPENDENCY).join(".cargo-checksum.json"), r#"{"files": {}}"#);
    let clones = Clones { directory: directory.path().to_owned(), vendor };

    let first = clones.create("first");
    let log = clones.build(&first);
    assert!(log.contains(&format!("Compiling {DEPENDENCY}")), "{log}");

    let second = clones.create("second");
    set_old_file_times(&second);
    let log = clones.build(&second);
    assert!(log.contains("Compiling odc ") && !log.contains(&format!("Compiling {DEPENDENCY}")), "{log}");

    assert_eq!(clones.run(&first), "odc: first");
    assert_eq!(clones.run(&second), "odc: second");
    clones.build(&first);
    assert_eq!((clones.run(&first), clones.run(&second)), ("odc: first".to_owned(), "odc: second".to_owned()));
}

#[test]
fn target_directory_of_a_deleted_clone_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let clones = Clones { directory: directory.path().to_owned(), vendor: directory.path().join("vendor") };
    std::fs::create_dir(&clones.vendor).unwrap();
    let gone = clones.directory.join("cache/odc/clones/1");
    write(&gone.join("root"), "/nonexistent\n");
    write(&gone.join("target/CACHEDIR.TAG"), "");

    let clone = clones.create_without_dependency("clone");
    clones.build(&clone);
    assert!(!gone.join("target").exists());
}

struct Clones {
    directory: PathBuf,
    vendor: PathBuf,
}

impl Clones {
    /// A workspace with our `dev` script whose executable `odc` prints the name of the clone.
    fn create(&self, name: &str) -> PathBuf {
        let source = format!("fn main() {{ println!(\"odc{{}}{name}\", vendored_dependency::SEPARATOR); }}\n");
        self.workspace(name, &source, &format!("[dependencies]\n{DEPENDENCY} = \"1\"\n"))
    }

    fn create_without_dependency(&self, name: &str) -> PathBuf {
        self.workspace(name, "fn main() {}\n", "")
    }

    fn workspace(&self, name: &str, source: &str, dependencies: &str) -> PathBuf {
        let root = self.directory.join(name);
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        write(&root.join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"odc\"]\n");
        write(&root.join("odc/Cargo.toml"), &manifest("odc", dependencies));
        write(&root.join("odc/src/main.rs"), source);
        for file in ["dev", "rust-toolchain.toml"] {
            std::fs::copy(repository.join(file), root.join(file)).unwrap();
        }
        let sources = format!(
            "[source.crates-io]\nreplace-with = \"vendor\"\n[source.vendor]\ndirectory = \"{}\"\n",
            self.vendor.display()
        );
        let config = std::fs::read_to_string(repository.join(".cargo/config.toml")).unwrap();
        write(&root.join(".cargo/config.toml"), &format!("{config}\n{sources}"));
        succeed(Command::new("cargo").args(["generate-lockfile", "--offline"]).current_dir(&root));
        root
    }

    /// Runs `./dev build` and returns what cargo printed.
    fn build(&self, root: &Path) -> String {
        let cache = self.directory.join("cache");
        succeed(Command::new("./dev").arg("build").env("XDG_CACHE_HOME", &cache).current_dir(root));
        let log = std::fs::read_dir(cache.join("odc/logs")).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            path.file_name().unwrap().to_string_lossy().starts_with("building-ODC").then_some(path)
        });
        std::fs::read_to_string(log.unwrap()).unwrap()
    }

    /// Runs the executable that `./dev` uses for this clone.
    fn run(&self, root: &Path) -> String {
        let clones = std::fs::read_dir(self.directory.join("cache/odc/clones")).unwrap();
        let clone = clones
            .map(|entry| entry.unwrap().path())
            .find(|clone| std::fs::read_to_string(clone.join("root")).unwrap().trim_end() == root.to_str().unwrap());
        succeed(&mut Command::new(clone.unwrap().join("bin/odc"))).trim_end().to_owned()
    }
}

fn manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n{rest}")
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn set_old_file_times(root: &Path) {
    succeed(Command::new("find").arg(root).args(["-exec", "touch", "-d", "2001-01-01", "{}", "+"]));
}

/// Runs a command without the environment of cargo and `./dev`, and returns its standard output.
fn succeed(command: &mut Command) -> String {
    for variable in ["CARGO_TARGET_DIR", "ODC_BIN_DIR", "CARGO", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
