//! How `odc` is linked. Of an operator that waits, most of what is resident is its own file, and the list of what to
//! relocate is read from end to end at every start: packed it is a fiftieth.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // The C library reads such lists since 2.36.
    if target("OS") == "linux" && target("ARCH") == "x86_64" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
