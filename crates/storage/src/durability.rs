//! The levels of durability of a write.

/// The guarantee for an acknowledged write. At every level the end of the process alone, also by `kill -9`, loses
/// nothing, and a crash of the machine leaves a state that the store was in: later writes are lost before earlier ones.
///
/// Where acknowledged writes may have been lost, the next start raises the revision far above all that were given out
/// and compacts below it: caches that saw lost writes get 410 and list anew, and no revision stands for two states.
/// for two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A write is synced to the disk before it is answered and before any reader or watcher sees it. No acknowledged
    /// write is ever lost by a crash of the process, of the system, or of the power.
    #[default]
    Synced,
    /// A write is answered once the operating system has it, and synced within a second. A crash of the system or
    /// of the power loses up to the last second of acknowledged writes.
    EverySecond,
    /// A write is answered once the operating system has it, which writes it to the disk at a time of its choice. A
    /// crash of the system or of the power loses the acknowledged writes of the last half minute or longer.
    Os,
}
