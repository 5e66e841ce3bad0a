//! The functions on memory that the compiler calls by name.

#[cfg(target_arch = "x86_64")]
use core::arch::asm;

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise: both are `len` bytes and apart.
    unsafe { forward(to, from, len) };
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: what is written lies before what is yet to be read.
        unsafe { forward(to, from, len) };
    } else {
        let mut i = len;
        while i > 0 {
            i -= 1;
            // SAFETY: the caller's promise; volatile, so that the loop does not become a call of this function.
            unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
        }
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise: `len` bytes are there.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") value as u8, options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..len {
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write_volatile(value as u8) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    let mut i = 0;
    while i < len {
        // SAFETY: the caller's promise: both are `len` bytes.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        i += 1;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, len) }
}

/// The standard library for the target is built to unwind and names this; nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[cfg(target_arch = "x86_64")]
unsafe fn forward(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack));
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn forward(to: *mut u8, from: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
    }
}
