//! Compiles the CRI's protocol in Rust, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/runtime.proto");
    let files = protox::compile(["proto/runtime.proto"], ["proto"])?;
    // The generated clients lie apart: only this crate's own ones, which bound each call, are public.
    let clients = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("clients");
    std::fs::create_dir_all(&clients)?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(false)
        .extern_path(".runtime.v1", "crate::runtime")
        .out_dir(clients)
        .compile_fds(files.clone())?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(true)
        .generate_default_stubs(true)
        .compile_fds(files)?;
    Ok(())
}
