//! Generates the kubelet's device-plugin interface from `proto/`, without needing `protoc` on the
//! machine.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/deviceplugin.proto");
    let files = protox::compile(["proto/deviceplugin.proto"], ["proto"])?;
    tonic_prost_build::compile_fds(files)?;
    Ok(())
}
