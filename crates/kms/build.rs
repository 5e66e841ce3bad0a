//! Compiles the protocol of KMS plugins in Rust, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/api.proto");
    let files = protox::compile(["proto/api.proto"], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}
