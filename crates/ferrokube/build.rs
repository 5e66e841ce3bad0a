//! Tells the linker to keep one of several functions that are the same machine code, in the binary that is shipped.
//! Each crate has its own copy of what it uses of generic types: of the destructors of a Pod there would be many.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTFLAGS");
    let is = |name: &str, value: &str| var(name).is_ok_and(|v| v == value);
    // There rustc links by LLD, unless somebody says otherwise; the linker of GNU does not know the option.
    let by_lld = is("TARGET", "x86_64-unknown-linux-gnu")
        && is("HOST", "x86_64-unknown-linux-gnu")
        && !var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"))
        && var("RUSTC_LINKER").is_err();
    if is("PROFILE", "release") && by_lld {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
