//! Compiles the protocol of KMS plugins in Rust, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    for file in ["proto/v1beta1.proto", "proto/v2.proto"] {
        tonic_prost_build::configure().btree_map(".").compile_fds(protox::compile([file], ["proto"])?)?;
    }
    Ok(())
}
