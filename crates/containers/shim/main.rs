//! The shim: one small process for each Pod, which outlives the runtime.
//!
//! It carries out plans (`plan.rs`) in processes that it makes, and keeps what must not end with the runtime: the
//! namespaces, the processes' exits, their terminals, pipes and logs (`serve.rs`). It decides nothing; the runtime does.
//! It is compiled by the crate's build script, without the standard library, so that it costs some 60 KB.

#![no_std]
#![no_main]

mod call;
mod exits;
mod hook;
mod logs;
mod memory;
mod mounts;
mod nr;
mod output;
mod plan;
mod program;
mod serve;
mod spawn;
mod sys;
mod table;
mod take;
mod wire;

use core::arch::global_asm;

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {main}", main = sym begin);

#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x30, #0", "bl {main}", main = sym begin);

/// The process begins with its set-up socket as standard input.
extern "C" fn begin() -> ! {
    sys::mask(sys::SIG_BLOCK_ALL);
    // A runtime that was careless with its descriptors passes none on.
    let _ = sys::call(nr::CLOSE_RANGE, &[3, u32::MAX as usize, 0]);
    let _ = sys::prctl(15, c"ferrokube-shim".as_ptr() as usize, 0);
    let setup = plan::Setup { socket: 0, go: -1 };
    plan::run(setup)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(125)
}
