//! The committed files are those that the protocols give.

use std::fs;
use std::path::Path;

#[test]
fn the_committed_files_are_what_is_generated() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let files = protocols::generate(root)?;
    assert!(files.len() > 3);
    for (path, text) in files {
        let committed = fs::read_to_string(root.join(&path))?;
        assert!(committed == text, "{} differs: run `cargo xtask protocols`", path.display());
    }
    Ok(())
}
