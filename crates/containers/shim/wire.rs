//! The words between the runtime and the shim: steps of a plan, requests, answers. Both sides compile this file.
//!
//! Everything is little-endian, bounded, and read with checks. A *plan* lies in a memory file: steps, each a header
//! ([`STEP_HEADER`] bytes: operation `u16`, flags `u16`, length of what follows `u32`) and fields: `u32`, `u64`, or a
//! text (its length as `u32`, its bytes, one NUL, and padding to four bytes). Descriptors are named by their place in
//! the list that the process got over its set-up socket.

/// Bytes of a step's header.
pub(crate) const STEP_HEADER: usize = 8;
/// The most bytes of a plan: arguments and environment may be 2 MiB, what the kernel allows them at most by default.
pub(crate) const MAX_PLAN: usize = 4 << 20;
/// The most descriptors of a plan.
pub(crate) const MAX_FDS: usize = 960;
/// The most file systems that are made before they are mounted.
pub(crate) const MAX_MADE: usize = 16;
/// The most descriptors of one message.
pub(crate) const FDS_A_MESSAGE: usize = 250;

/// Operations of a plan.
pub(crate) mod step {
    /// `unshare(u32)`.
    pub(crate) const UNSHARE: u16 = 1;
    /// `setns(fd, u32)`.
    pub(crate) const SETNS: u16 = 2;
    /// Tells the runtime (`u32`) and waits for its word.
    pub(crate) const SYNC: u16 = 3;
    /// The host's name.
    pub(crate) const HOSTNAME: u16 = 4;
    /// The NIS domain's name.
    pub(crate) const DOMAINNAME: u16 = 5;
    /// Writes a text into a file below /proc: path, text.
    pub(crate) const WRITE: u16 = 6;
    /// Changes the propagation of all mounts (`u32`, as mount(2) has it).
    pub(crate) const PROPAGATION: u16 = 7;
    /// Makes a detached mount (fd) the root, and lets go of the old one.
    pub(crate) const ATTACH_ROOT: u16 = 8;
    /// Makes a directory with those above it: path, mode.
    pub(crate) const MKDIR: u16 = 9;
    /// Attaches a detached mount: fd, path.
    pub(crate) const MOUNT_FD: u16 = 10;
    /// Mounts a new file system: type, attributes `u32`, path, number of options `u32`, then key and value each; an
    /// empty value is a flag.
    pub(crate) const MOUNT_FS: u16 = 11;
    /// Hides a path: fd of a mount of /dev/null, for files; path.
    pub(crate) const MASK: u16 = 12;
    /// Makes a path read-only: path.
    pub(crate) const READONLY: u16 = 13;
    /// Changes the mount at a path: path, attributes to set `u32`, propagation `u32` (0: as it is).
    pub(crate) const ATTR: u16 = 14;
    /// Makes a device node: path, mode `u32`, device `u64`, user `u32`, group `u32`.
    pub(crate) const MKNOD: u16 = 15;
    /// Makes a symbolic link: text, path.
    pub(crate) const SYMLINK: u16 = 16;
    /// A limit: resource `u32`, soft `u64`, hard `u64`.
    pub(crate) const RLIMIT: u16 = 17;
    /// Makes a terminal: height `u32`, width `u32`, user `u32`. It becomes the streams, and its master goes to the shim
    /// or (flag [`flag::TO_RUNTIME`]) to the runtime.
    pub(crate) const PTY: u16 = 18;
    /// The streams: three fds.
    pub(crate) const STDIO: u16 = 19;
    /// The bounding set: `u64`.
    pub(crate) const BOUNDING: u16 = 20;
    /// The user: user `u32`, group `u32`, number of groups `u32`, groups. Capabilities are kept ([`flag::KEEP`]).
    pub(crate) const USER: u16 = 21;
    /// The capabilities: effective, permitted, inheritable, ambient `u64`.
    pub(crate) const CAPS: u16 = 22;
    /// No new privileges from here.
    pub(crate) const NO_NEW_PRIVS: u16 = 23;
    /// A filter of system calls: flags `u32`, the program as a text.
    pub(crate) const SECCOMP: u16 = 24;
    /// The working directory: path. [`flag::AGAIN`]: only if the first try was refused.
    pub(crate) const CWD: u16 = 25;
    /// The mask of new files' modes: `u32`.
    pub(crate) const UMASK: u16 = 26;
    /// Tells the runtime that the process is there, and waits for the shim's word to go on.
    pub(crate) const WAIT: u16 = 27;
    /// Looks for the program among candidates: number `u32`, paths.
    pub(crate) const LOOK: u16 = 28;
    /// Executes the program that was found: numbers of arguments and variables `u32`, both lists.
    pub(crate) const EXEC: u16 = 29;
    /// Becomes the first process of a process namespace: reaps and waits for ever.
    pub(crate) const REAP: u16 = 30;
    /// Becomes the shim: fd of the listening socket, fd of the directory of exit records.
    pub(crate) const SERVE: u16 = 31;
    /// Brings the loopback link up.
    pub(crate) const LOOPBACK: u16 = 32;
    /// A session keyring of its own.
    pub(crate) const KEYRING: u16 = 33;
    /// The personality: `u32`.
    pub(crate) const PERSONALITY: u16 = 34;
    /// The priority of input and output: `u32`.
    pub(crate) const IO_PRIORITY: u16 = 35;
    /// `prctl(PR_SET_DUMPABLE, 0)`: no process of a container looks into this one before it executes.
    pub(crate) const HIDE: u16 = 36;
    /// The scheduler: policy `u32`, priority `u32`, niceness `u32`.
    pub(crate) const SCHEDULER: u16 = 37;
    /// A session of its own, without a terminal.
    pub(crate) const SESSION: u16 = 38;
    /// Ends the process well.
    pub(crate) const END: u16 = 39;
    /// Puts the process into a cgroup: fd of its `tasks` (v1) or `cgroup.procs`. A thread that moves itself by `tasks`
    /// waits for no grace period of the kernel, which costs anyone else 4 to 16 ms.
    pub(crate) const JOIN: u16 = 40;
    /// Makes a file system that is mounted later: type, attributes `u32`, options as [`MOUNT_FS`]'s. A user namespace
    /// gets `proc` and `sysfs` only while it sees whole ones, so they are made before the old root goes.
    pub(crate) const MAKE_FS: u16 = 41;
    /// Attaches what [`MAKE_FS`] made: its place among them `u32`, path.
    pub(crate) const MOUNT_MADE: u16 = 42;
    /// Makes a mount that is attached already the root of all later steps, and keeps the old root reachable for others
    /// who join this namespace: path.
    pub(crate) const ENTER_ROOT: u16 = 43;
    /// Makes that root the namespace's own, and lets go of the old one: path.
    pub(crate) const LEAVE_HOST: u16 = 44;
    /// Runs a hook to its end: its place among the hooks `u32`, its time in milliseconds `u32`, path, two texts between
    /// which the process's number stands in its input, numbers of arguments and variables `u32`, both lists.
    pub(crate) const HOOK: u16 = 45;
}

/// Flags of steps.
pub(crate) mod flag {
    /// A refusal (EPERM, EACCES, ENOENT and the like) is no failure.
    pub(crate) const OPTIONAL: u16 = 1;
    /// The target's path has no symbolic link.
    pub(crate) const NO_SYMLINKS: u16 = 4;
    /// The terminal's master goes to the runtime.
    pub(crate) const TO_RUNTIME: u16 = 8;
    /// Capabilities outlive the change of the user.
    pub(crate) const KEEP: u16 = 16;
    /// Only if the first try was refused.
    pub(crate) const AGAIN: u16 = 32;
    /// The terminal is bound at /dev/console.
    pub(crate) const CONSOLE: u16 = 64;
    /// The mode of `user.groups` is left as it is.
    pub(crate) const NO_GROUPS: u16 = 128;
}

/// Messages of a process that is set up. Each is four `u32`: the kind and three figures.
pub(crate) mod note {
    /// A step asks the runtime: its code.
    pub(crate) const SYNC: u32 = 1;
    /// The process is there and waits.
    pub(crate) const READY: u32 = 2;
    /// A terminal's master comes along.
    pub(crate) const CONSOLE: u32 = 3;
    /// A step failed: its place, the error, a detail.
    pub(crate) const FAILED: u32 = 4;
    /// Bytes of a note.
    pub(crate) const LEN: usize = 16;
}

/// The failure of a step [`step::HOOK`] in place of a step's: its place, and how the hook ended in place of an error.
pub(crate) mod hook {
    /// The failed place of the first hook; that of the next one is less by one.
    pub(crate) const FIRST: u32 = u32::MAX - 1;
    /// The most hooks.
    pub(crate) const MOST: u32 = 256;
    /// It ended with a code, which is added.
    pub(crate) const CODE: u32 = 0x1_0000;
    /// A signal ended it, which is added.
    pub(crate) const SIGNAL: u32 = 0x2_0000;
    /// Its time was up.
    pub(crate) const LATE: u32 = 0x3_0000;
}

/// Requests to the shim. Each is six `u32`: operation, tag, slot, flags, and two figures.
pub(crate) mod request {
    /// Makes a process; the descriptors' order is that of [`super::spawn`]'s flags.
    pub(crate) const SPAWN: u32 = 1;
    /// Lets a process go on that waits.
    pub(crate) const START: u32 = 2;
    /// Sends a signal.
    pub(crate) const SIGNAL: u32 = 3;
    /// Takes another log file.
    pub(crate) const LOG: u32 = 4;
    /// Adds someone who is attached: pipes for standard output and error.
    pub(crate) const ATTACH: u32 = 5;
    /// Closes standard input.
    pub(crate) const CLOSE_STDIN: u32 = 6;
    /// Changes a terminal's size: width, height.
    pub(crate) const RESIZE: u32 = 7;
    /// Forgets a process that ended.
    pub(crate) const FORGET: u32 = 8;
    /// Tells every process.
    pub(crate) const LIST: u32 = 9;
    /// Gives a descriptor of a process.
    pub(crate) const PIDFD: u32 = 10;
    /// Ends the shim.
    pub(crate) const QUIT: u32 = 11;
    /// Enters namespaces of its own children's making: fds, each with its type from the figures, is not needed; the
    /// shim answers with its own process.
    pub(crate) const HELLO: u32 = 12;
    /// Takes a child that another program made and left: its number is the first figure; descriptors as for
    /// [`SPAWN`].
    pub(crate) const TAKE: u32 = 13;
    /// Bytes of a request.
    pub(crate) const LEN: usize = 24;
}

/// Flags of [`request::SPAWN`] and [`request::ATTACH`]; a descriptor comes with those that say so, in this order.
pub(crate) mod spawn {
    /// The set-up socket; always.
    pub(crate) const SETUP: u32 = 1;
    /// A process namespace to be born in: a descriptor of it or of a process in it.
    pub(crate) const IN_PID: u32 = 2;
    /// A user namespace to be born in, with a process namespace of its own.
    pub(crate) const IN_USER: u32 = 4;
    /// A cgroup (v2) to be born in.
    pub(crate) const IN_CGROUP: u32 = 8;
    /// The writing end of standard input.
    pub(crate) const STDIN: u32 = 16;
    /// The reading end of standard output.
    pub(crate) const STDOUT: u32 = 32;
    /// The reading end of standard error.
    pub(crate) const STDERR: u32 = 64;
    /// The log.
    pub(crate) const LOG: u32 = 128;
    /// A process namespace of its own.
    pub(crate) const NEW_PID: u32 = 256;
    /// Standard input is closed when the first one who was attached to it leaves.
    pub(crate) const STDIN_ONCE: u32 = 512;
    /// The process goes on at once, and has no exit record.
    pub(crate) const EXEC: u32 = 1024;
    /// The process is the sandbox's own.
    pub(crate) const HOLDER: u32 = 2048;
    /// The master of the process's terminal.
    pub(crate) const TERMINAL: u32 = 4096;
    /// The process was made by another program, which starts it, too.
    pub(crate) const TAKEN: u32 = 8192;
}

/// Answers and events. Each is eight `u32` (kind, tag, slot, error, process, state, and two more) and two `u64`.
pub(crate) mod answer {
    /// The answer to a request.
    pub(crate) const ANSWER: u32 = 1;
    /// One process of a list.
    pub(crate) const ITEM: u32 = 2;
    /// A process ended.
    pub(crate) const EXITED: u32 = 3;
    /// Bytes of an answer.
    pub(crate) const LEN: usize = 48;
}

/// States of a process.
pub(crate) mod state {
    /// It is set up, or waits to be started.
    pub(crate) const SPAWNED: u32 = 1;
    /// It was told to go on.
    pub(crate) const STARTED: u32 = 2;
    /// It ended.
    pub(crate) const EXITED: u32 = 3;
    /// A flag: it executed its program.
    pub(crate) const EXECUTED: u32 = 16;
    /// A flag: its last steps failed.
    pub(crate) const FAILED: u32 = 32;
    /// A flag: it told that it is there.
    pub(crate) const READY: u32 = 64;
}
