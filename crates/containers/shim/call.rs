//! A system call without a library. The runtime makes those by it for which it has no other words.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
unsafe fn call6(n: usize, a: [usize; 6]) -> isize {
    let mut r = n as isize;
    // SAFETY: the kernel keeps all registers but these; what the call does to memory is the caller's to know.
    unsafe {
        asm!("syscall", inlateout("rax") r, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3],
            in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

#[cfg(target_arch = "aarch64")]
unsafe fn call6(n: usize, a: [usize; 6]) -> isize {
    let mut r = a[0] as isize;
    // SAFETY: as on the other architecture.
    unsafe {
        asm!("svc 0", in("x8") n, inlateout("x0") r, in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4],
            in("x5") a[5], options(nostack));
    }
    r
}

/// Makes a system call with any arguments, up to six.
pub(crate) fn call(n: usize, args: &[usize]) -> Result<usize, i32> {
    let mut a = [0usize; 6];
    for (to, from) in a.iter_mut().zip(args) {
        *to = *from;
    }
    // SAFETY: callers pass addresses of memory that lives and is as long as the call wants.
    let r = unsafe { call6(n, a) };
    if (-4095..0).contains(&r) { Err(-r as i32) } else { Ok(r as usize) }
}
