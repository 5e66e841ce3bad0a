//! The check that a server goes on for others.

use anyhow::Result;
use testkit::Server;

/// Fails unless the server answers others as before.
pub(crate) fn serves_others(server: &Server) -> Result<()> {
    server.get("/readyz").send()?.expect(200)?;
    server.get("/api/v1/namespaces/default").send()?.expect(200)?;
    Ok(())
}

#[test]
fn a_server_that_nobody_attacks_serves() -> Result<()> {
    serves_others(&Server::start(&[])?)
}
