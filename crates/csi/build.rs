//! Generates the CSI and the kubelet's plugin registration API from `proto/`. Does not require `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/csi.proto", "proto/pluginregistration.proto"], ["proto"])?;
    tonic_prost_build::compile_fds(files)?;
    Ok(())
}
