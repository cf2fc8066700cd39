//! Generates the kubelet's device plugin API from `proto/`. Does not require `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/deviceplugin.proto");
    let files = protox::compile(["proto/deviceplugin.proto"], ["proto"])?;
    tonic_prost_build::compile_fds(files)?;
    Ok(())
}
