//! Writes OCI layouts: one compressed layer, a configuration, a manifest.
//!
//! The same content gives the same bytes, so an image's name in the cache is its content.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use oci_spec::image::{
    Arch, Config, Descriptor, ImageConfiguration, ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder,
    Os, RootFsBuilder, SCHEMA_VERSION, Sha256Digest,
};
use sha2::{Digest as _, Sha256};

use super::cache;

/// Images of our own programs run as nobody in particular.
const USER: u32 = 65532;

/// Whom this machine trusts, and so the images made on it.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An executable, and where it is in its image.
#[derive(Clone, Debug)]
pub(super) struct Program<'a> {
    pub binary: &'a Path,
    /// Without a slash in front.
    pub place: String,
}

impl<'a> Program<'a> {
    /// At the root, unless another place is named.
    pub fn new(binary: &'a Path, at: Option<&str>) -> anyhow::Result<Self> {
        let name = binary.file_name().and_then(|name| name.to_str());
        let place = at.or(name).with_context(|| format!("{} has no usable name", binary.display()))?;
        let place = place.trim_start_matches('/').to_owned();
        anyhow::ensure!(
            !place.is_empty() && place.split('/').all(|part| !["", ".", ".."].contains(&part)),
            "an executable cannot be at {place:?} in an image; name a file, such as /bin/sh"
        );
        Ok(Self { binary, place })
    }

    /// What the image is called by.
    pub fn name(&self) -> &str {
        self.place.rsplit('/').next().unwrap_or(&self.place)
    }
}

/// Where the image of this very binary lies or will lie: `NAME.HASH`.
pub(super) fn cached(program: &Program<'_>) -> anyhow::Result<PathBuf> {
    let (binary, name) = (program.binary, program.name());
    let mut file = File::open(binary).with_context(|| format!("reading {}", binary.display()))?;
    let mut hash = Sha256::new();
    if program.place != name {
        hash.update(&program.place);
    }
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(|| format!("reading {}", binary.display()))? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(cache()?.join(format!("{name}.{}", &hex(&hash.finalize())[..12])))
}

/// A minimal image: the static binary, and a user for it.
pub(super) fn binary(program: &Program<'_>, layout: &Path) -> anyhow::Result<()> {
    let Program { binary, place } = program;
    let mut config = Config::default();
    config
        .set_entrypoint(Some(vec![format!("/{place}")]))
        .set_user(Some(format!("{USER}:{USER}")))
        .set_working_dir(Some("/".into()));
    write_layout(layout, config, |layer| {
        let mut archive = tar::Builder::new(layer);
        for (path, text) in [
            ("etc/passwd", format!("root:x:0:0:root:/:/sbin/nologin\nodc:x:{USER}:{USER}:odc:/:/sbin/nologin\n")),
            ("etc/group", format!("root:x:0:\nodc:x:{USER}:\n")),
        ] {
            archive.append_data(&mut header(text.len() as u64, 0o644), path, text.as_bytes())?;
        }
        // For talking to registries and clouds by TLS.
        if let Ok(authorities) = std::fs::read(AUTHORITIES) {
            archive.append_data(
                &mut header(authorities.len() as u64, 0o644),
                &AUTHORITIES[1..],
                authorities.as_slice(),
            )?;
        }
        let file = File::open(binary)?;
        archive.append_data(&mut header(file.metadata()?.len(), 0o755), place, file)?;
        archive.finish()
    })
}

/// Writes the layout beside its place and moves it there when it is complete.
pub(super) fn write_layout(
    layout: &Path,
    config: Config,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut name = layout.file_name().context("an image has a name")?.to_owned();
    name.push(".new");
    let work = layout.with_file_name(name);
    let _lock = lock(&work.with_extension("lock"))?;
    if layout.exists() {
        return Ok(());
    }
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    let blobs = work.join("blobs/sha256");
    std::fs::create_dir_all(&blobs)?;

    let unnamed = work.join("layer");
    let mut compressed = Hashing::new(io::BufWriter::new(File::create(&unnamed)?));
    // Loopback is faster than any compressor, and the cache is not precious.
    let mut plain = Hashing::new(GzEncoder::new(&mut compressed, Compression::fast()));
    fill(&mut plain)?;
    let (content, encoder) = plain.finish();
    encoder.finish()?;
    let size = compressed.written;
    let (digest, writer) = compressed.finish();
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&unnamed, blobs.join(&digest))?;
    let layer = descriptor(MediaType::ImageLayerGzip, size, &digest)?;

    let mut image = ImageConfiguration::default();
    image
        .set_architecture(architecture())
        .set_os(Os::Linux)
        .set_config(Some(config))
        .set_rootfs(RootFsBuilder::default().typ("layers").diff_ids(vec![format!("sha256:{content}")]).build()?);
    let config = write_blob(&blobs, MediaType::ImageConfig, &serde_json::to_vec(&image)?)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(vec![layer])
        .build()?;
    let manifest = write_blob(&blobs, MediaType::ImageManifest, &serde_json::to_vec(&manifest)?)?;
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests(vec![manifest])
        .build()?;
    std::fs::write(work.join("index.json"), serde_json::to_vec(&index)?)?;
    let mark = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
    std::fs::write(work.join("oci-layout"), serde_json::to_vec(&mark)?)?;

    std::fs::rename(&work, layout).with_context(|| format!("keeping {}", layout.display()))
}

/// Two makers of the same image take turns, and the second finds it done.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path).with_context(|| format!("opening {}", path.display()))?;
    file.lock().with_context(|| format!("waiting for {}", path.display()))?;
    Ok(file)
}

/// The digest a registry knows the image by.
pub(super) fn manifest_digest(layout: &Path) -> anyhow::Result<String> {
    let index = oci_spec::image::ImageIndex::from_file(layout.join("index.json"))
        .with_context(|| format!("reading {}", layout.display()))?;
    Ok(index.manifests().first().context("an image layout without an image")?.digest().to_string())
}

fn write_blob(blobs: &Path, kind: MediaType, bytes: &[u8]) -> anyhow::Result<Descriptor> {
    let digest = hex(&Sha256::digest(bytes));
    std::fs::write(blobs.join(&digest), bytes)?;
    descriptor(kind, bytes.len() as u64, &digest)
}

fn descriptor(kind: MediaType, size: u64, digest: &str) -> anyhow::Result<Descriptor> {
    let digest: Sha256Digest = digest.parse()?;
    Ok(Descriptor::new(kind, size, digest))
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn architecture() -> Arch {
    if cfg!(target_arch = "aarch64") { Arch::ARM64 } else { Arch::Amd64 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes and counts what passes through.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    written: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), written: 0 }
    }

    fn finish(self) -> (String, W) {
        (hex(&self.hash.finalize()), self.inner)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_binary_packs_to_the_same_image() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, "#!static").unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let packed = Program::new(&program, None).unwrap();
        binary(&packed, &one).unwrap();
        binary(&packed, &two).unwrap();
        assert_eq!(manifest_digest(&one).unwrap(), manifest_digest(&two).unwrap());
    }

    #[test]
    fn a_program_can_be_at_any_place_of_its_image_and_has_its_name() {
        let file = Path::new("/usr/bin/busybox");
        let at = |place| Program::new(file, place).map(|program| (program.place.clone(), program.name().to_owned()));
        assert_eq!(at(None).unwrap(), ("busybox".to_owned(), "busybox".to_owned()));
        assert_eq!(at(Some("/bin/sh")).unwrap(), ("bin/sh".to_owned(), "sh".to_owned()));
        for odd in ["", "/", "/bin/", "/../sh", "a//b", "."] {
            assert!(at(Some(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn every_blob_is_named_by_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, vec![7; 100_000]).unwrap();
        let layout = directory.path().join("image");
        binary(&Program::new(&program, None).unwrap(), &layout).unwrap();
        let mut seen = 0;
        for blob in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            assert_eq!(
                path.file_name().unwrap().to_str().unwrap(),
                hex(&Sha256::digest(std::fs::read(&path).unwrap()))
            );
            seen += 1;
        }
        assert_eq!(seen, 3);
    }
}
