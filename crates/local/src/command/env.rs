//! `odc local env`: prints shell assignments for `eval`.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::components::DatabaseRole;
use crate::layout::Layout;
use crate::service_install;
use crate::settings::Mode;

pub fn env(layout: Layout) -> anyhow::Result<()> {
    let blueprint = super::load_blueprint(layout)?;
    let kubeconfig = blueprint.settings.external_kubeconfig.clone().unwrap_or_else(|| blueprint.layout.kubeconfig());
    let mut out = std::io::stdout().lock();
    writeln!(out, "export KUBECONFIG={}", quote_path(&kubeconfig)?)?;
    if blueprint.settings.mode() != Mode::ControlPlane {
        writeln!(out, "export DATABASE_URL={}", shlex::try_quote(&blueprint.database_url(DatabaseRole::Migrator)?)?)?;
    }
    if let Some(access) = service_install::api_access(&blueprint) {
        writeln!(out, "export ODC_API_URL={}", shlex::try_quote(&access.url)?)?;
        writeln!(out, "export ODC_API_KEY={}", shlex::try_quote(&access.key)?)?;
        writeln!(out, "export ODC_API_CA={}", quote_path(&access.ca)?)?;
    }
    writeln!(out, "export PATH={}:\"$PATH\"", quote_path(&blueprint.layout.bin())?)?;
    writeln!(out, "export ODC_LOCAL_DIR={}", quote_path(blueprint.layout.root())?)?;
    Ok(())
}

/// Quotes a path for a POSIX shell.
fn quote_path(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))?;
    Ok(shlex::try_quote(text)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_path_survives_the_shell() {
        for path in ["plain", "with space", "it's", "$HOME `x` \"y\""] {
            let script = format!("printf %s {}", quote_path(Path::new(path)).unwrap());
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), path);
        }
    }
}
