//! Writes OCI image layouts with compressed layers.
//!
//! The output is reproducible, so cached layouts are named after a hash of their content.

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

use super::images_dir;

/// User and group ID of packed executables.
const UID: u32 = 65532;

/// Search path of commands in a Debian file system.
pub(super) const DEBIAN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// CA certificates of this machine, copied into the image.
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An executable and its path in the image.
#[derive(Clone, Debug)]
pub(super) struct Program<'a> {
    pub binary: &'a Path,
    /// Without a leading slash.
    pub path: String,
}

impl<'a> Program<'a> {
    /// The default path is the file name in the root directory.
    pub fn new(binary: &'a Path, path: Option<&str>) -> anyhow::Result<Self> {
        let name = binary.file_name().and_then(|name| name.to_str());
        let path = path.or(name).with_context(|| format!("{} has no valid file name", binary.display()))?;
        let path = path.trim_start_matches('/').to_owned();
        anyhow::ensure!(
            !path.is_empty() && path.split('/').all(|segment| !["", ".", ".."].contains(&segment)),
            "invalid path of an executable in an image: {path:?}; expected a file such as /bin/sh"
        );
        Ok(Self { binary, path })
    }

    /// Returns the name of the image.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Returns the path of the layout of this image, `NAME.HASH`, which may not exist yet. `base` identifies the layer below
/// the executable, if any.
pub(super) fn layout_path(program: &Program<'_>, base: Option<&str>) -> anyhow::Result<PathBuf> {
    let (binary, name) = (program.binary, program.name());
    let mut file = File::open(binary).with_context(|| format!("reading {}", binary.display()))?;
    let mut hash = Sha256::new();
    if program.path != name {
        hash.update(&program.path);
    }
    if let Some(base) = base {
        hash.update(base);
    }
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(|| format!("reading {}", binary.display()))? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(images_dir()?.join(format!("{name}.{}", &hex(&hash.finalize())[..12])))
}

/// Packs a minimal image: the static executable, a user for it and CA certificates.
pub(super) fn pack_binary(program: &Program<'_>, layout: &Path) -> anyhow::Result<()> {
    let Program { binary, path: target } = program;
    let mut config = Config::default();
    config
        .set_entrypoint(Some(vec![format!("/{target}")]))
        .set_user(Some(format!("{UID}:{UID}")))
        .set_working_dir(Some("/".into()));
    let fill = |layer: &mut dyn Write| {
        let mut archive = tar::Builder::new(layer);
        for (path, text) in [
            ("etc/passwd", format!("root:x:0:0:root:/:/sbin/nologin\nodc:x:{UID}:{UID}:odc:/:/sbin/nologin\n")),
            ("etc/group", format!("root:x:0:\nodc:x:{UID}:\n")),
        ] {
            archive.append_data(&mut header(text.len() as u64, 0o644), path, text.as_bytes())?;
        }
        // For TLS connections to registries and the API server.
        if let Ok(bundle) = std::fs::read(CA_BUNDLE) {
            archive.append_data(&mut header(bundle.len() as u64, 0o644), &CA_BUNDLE[1..], bundle.as_slice())?;
        }
        append_executable(&mut archive, binary, target)
    };
    write_layout(layout, config, vec![Box::new(fill)])
}

/// Packs an executable on top of a file system, for programs that run the commands in it. The program runs as root.
pub(super) fn pack_on_base(program: &Program<'_>, base: &Path, layout: &Path) -> anyhow::Result<()> {
    let Program { binary, path: target } = program;
    let mut config = Config::default();
    config
        .set_env(Some(vec![format!("PATH={DEBIAN_PATH}")]))
        .set_entrypoint(Some(vec![format!("/{target}")]))
        .set_working_dir(Some("/".into()));
    let executable = |layer: &mut dyn Write| append_executable(&mut tar::Builder::new(layer), binary, target);
    write_layout(layout, config, vec![copy_archive(base), Box::new(executable)])
}

/// Adds the executable as the last file of a layer.
fn append_executable(archive: &mut tar::Builder<&mut dyn Write>, binary: &Path, target: &str) -> io::Result<()> {
    let file = File::open(binary)?;
    archive.append_data(&mut header(file.metadata()?.len(), 0o755), target, file)?;
    archive.finish()
}

/// Writes the uncompressed content of a layer, a tar archive.
pub(super) type LayerWriter<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

/// Returns the content of an archive as a layer.
pub(super) fn copy_archive(archive: &Path) -> LayerWriter<'_> {
    Box::new(move |layer| io::copy(&mut File::open(archive)?, layer).map(drop))
}

/// Writes the layout into a temporary directory and renames it when it is complete.
pub(super) fn write_layout(layout: &Path, config: Config, layers: Vec<LayerWriter<'_>>) -> anyhow::Result<()> {
    let mut name = layout.file_name().context("a layout has a file name")?.to_owned();
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

    let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
    for layer in layers {
        let (descriptor, diff_id) = write_layer(&blobs, layer)?;
        descriptors.push(descriptor);
        diff_ids.push(format!("sha256:{diff_id}"));
    }

    let mut image = ImageConfiguration::default();
    image
        .set_architecture(architecture())
        .set_os(Os::Linux)
        .set_config(Some(config))
        .set_rootfs(RootFsBuilder::default().typ("layers").diff_ids(diff_ids).build()?);
    let config = write_blob(&blobs, MediaType::ImageConfig, &serde_json::to_vec(&image)?)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(descriptors)
        .build()?;
    let manifest = write_blob(&blobs, MediaType::ImageManifest, &serde_json::to_vec(&manifest)?)?;
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests(vec![manifest])
        .build()?;
    std::fs::write(work.join("index.json"), serde_json::to_vec(&index)?)?;
    let marker = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
    std::fs::write(work.join("oci-layout"), serde_json::to_vec(&marker)?)?;

    std::fs::rename(&work, layout).with_context(|| format!("renaming to {}", layout.display()))
}

/// Writes a layer as a blob and returns its descriptor and the digest of its uncompressed content.
fn write_layer(blobs: &Path, fill: LayerWriter<'_>) -> anyhow::Result<(Descriptor, String)> {
    let path = blobs.join("layer");
    let mut compressed = HashingWriter::new(io::BufWriter::new(File::create(&path)?));
    // Fast compression: images are only pushed over loopback.
    let mut uncompressed = HashingWriter::new(GzEncoder::new(&mut compressed, Compression::fast()));
    fill(&mut uncompressed)?;
    let (diff_id, encoder) = uncompressed.finish();
    encoder.finish()?;
    let size = compressed.written;
    let (digest, writer) = compressed.finish();
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&path, blobs.join(&digest))?;
    Ok((descriptor(MediaType::ImageLayerGzip, size, &digest)?, diff_id))
}

/// Serializes concurrent builds of the same image.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path).with_context(|| format!("opening {}", path.display()))?;
    file.lock().with_context(|| format!("waiting for {}", path.display()))?;
    Ok(file)
}

/// Returns the manifest digest, which identifies the image in a registry.
pub(super) fn manifest_digest(layout: &Path) -> anyhow::Result<String> {
    let index = oci_spec::image::ImageIndex::from_file(layout.join("index.json"))
        .with_context(|| format!("reading {}", layout.display()))?;
    Ok(index.manifests().first().context("the image layout has no manifest")?.digest().to_string())
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

/// Writer that hashes and counts the bytes written.
struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    written: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), written: 0 }
    }

    fn finish(self) -> (String, W) {
        (hex(&self.hash.finalize()), self.inner)
    }
}

impl<W: Write> Write for HashingWriter<W> {
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
    fn packing_is_reproducible() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, "#!static").unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let packed = Program::new(&program, None).unwrap();
        pack_binary(&packed, &one).unwrap();
        pack_binary(&packed, &two).unwrap();
        assert_eq!(manifest_digest(&one).unwrap(), manifest_digest(&two).unwrap());
    }

    #[test]
    fn executable_on_a_base_is_a_second_layer() {
        let directory = tempfile::tempdir().unwrap();
        let (program, base) = (directory.path().join("program"), directory.path().join("base.tar"));
        std::fs::write(&program, "#!static").unwrap();
        std::fs::write(&base, [0; 1024]).unwrap();
        let layout = directory.path().join("image");
        let packed = Program::new(&program, None).unwrap();
        pack_on_base(&packed, &base, &layout).unwrap();
        // Two layers, a configuration and a manifest.
        assert_eq!(std::fs::read_dir(layout.join("blobs/sha256")).unwrap().count(), 4);
    }

    #[test]
    fn image_is_named_after_the_file_name_of_the_executable() {
        let file = Path::new("/usr/bin/busybox");
        let program = |path| Program::new(file, path).map(|program| (program.path.clone(), program.name().to_owned()));
        assert_eq!(program(None).unwrap(), ("busybox".to_owned(), "busybox".to_owned()));
        assert_eq!(program(Some("/bin/sh")).unwrap(), ("bin/sh".to_owned(), "sh".to_owned()));
        for path in ["", "/", "/bin/", "/../sh", "a//b", "."] {
            assert!(program(Some(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn blobs_are_named_after_their_digest() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, vec![7; 100_000]).unwrap();
        let layout = directory.path().join("image");
        pack_binary(&Program::new(&program, None).unwrap(), &layout).unwrap();
        let mut count = 0;
        for blob in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            assert_eq!(
                path.file_name().unwrap().to_str().unwrap(),
                hex(&Sha256::digest(std::fs::read(&path).unwrap()))
            );
            count += 1;
        }
        assert_eq!(count, 3);
    }
}
