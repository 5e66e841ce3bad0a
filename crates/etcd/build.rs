//! Compiles etcd's protocol in Rust, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/rpc.proto");
    let files = protox::compile(["proto/rpc.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(files)?;
    Ok(())
}
