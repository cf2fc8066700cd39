//! Shows notices in interactive shells and adds the tools directory to `PATH`, without changing the user's files.
//!
//! bash executes `PROMPT_COMMAND` before each prompt, even if the variable is inherited. Other shells have no such
//! variable; the documentation has lines for their start-up files.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::serve::notify::current_notices::PROMPT_FILE;
use crate::serve::session::env::TOOLS_DIR;

pub const VARIABLE: &str = "PROMPT_COMMAND";

/// Returns the variable, which extends the inherited value.
pub fn variable(state_dir: &Path, inherited: Option<&OsStr>) -> Option<(OsString, OsString)> {
    Some((VARIABLE.into(), command(state_dir, inherited)?))
}

/// The inherited command runs first, so that `$?` is that of the user's command. `PATH` is extended here because login
/// shells read `/etc/profile`, which replaces it in many images.
fn command(state_dir: &Path, inherited: Option<&OsStr>) -> Option<OsString> {
    // State directories that would need quoting are not supported.
    let file = state_dir.join(PROMPT_FILE).into_os_string().into_string().ok()?;
    let needs_no_quoting = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !file.chars().all(needs_no_quoting) {
        return None;
    }
    let own = format!(
        "if [ -s {file} ]; then while IFS= read -r __odc; do printf '\\033[1;33m[odc] %s\\033[0m\\n' \"$__odc\"; done <{file} 2>/dev/null; unset __odc; fi; case :${{PATH-}}: in *:{TOOLS_DIR}:*) ;; *) export PATH=\"${{PATH-}}:{TOOLS_DIR}\" 2>/dev/null ;; esac"
    );
    let mut command = inherited.filter(|inherited| !inherited.is_empty()).map(OsStr::to_owned).unwrap_or_default();
    if !command.is_empty() {
        command.push("\n");
    }
    command.push(own);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// Returns what an interactive bash prints.
    fn bash_output(state_dir: &Path, inherited: Option<&str>, input: &str) -> String {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ").env("HISTFILE", "/dev/null");
        bash.env(VARIABLE, command(state_dir, inherited.map(OsStr::new)).unwrap());
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = bash.spawn().expect("bash is installed");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn bash_shows_notices_before_every_prompt() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(PROMPT_FILE);
        fs::write(&file, "expires in 5m; $(touch /nothing) `x`\n").unwrap();
        let input = format!("echo one\nrm {}\necho two\n", file.display());
        let shown = bash_output(state.path(), Some("echo mine"), &input);
        let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        let warning = "\x1b[1;33m[odc] expires in 5m; $(touch /nothing) `x`\x1b[0m";
        assert_eq!(shown, ["mine", warning, "one", "mine", warning, "mine", "two", "mine"]);
    }

    #[test]
    fn bash_adds_the_tools_directory_to_a_replaced_path() {
        let state = tempfile::tempdir().unwrap();
        let shown = bash_output(state.path(), None, "PATH=/usr/bin:/bin\necho $PATH\necho $PATH\n");
        let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, ["/usr/bin:/bin:/odc/bin"; 2]);
        // With a read-only PATH the notices are still shown.
        fs::write(state.path().join(PROMPT_FILE), "expires\n").unwrap();
        let shown = bash_output(state.path(), None, "PATH=/usr/bin:/bin\nreadonly PATH\n");
        assert_eq!(shown.matches("expires").count(), 3, "{shown}");
    }

    #[test]
    fn state_directory_that_needs_quoting_is_not_supported() {
        assert_eq!(command(Path::new("/a b"), None), None);
        assert!(command(Path::new("/run/odc"), Some(OsStr::new(""))).is_some());
    }
}
