//! `onesweep peer keys`: a small authority.

use std::io::{self, Write};

use onesweep_peer::{
    keys::{self, Validity},
    tls::Role,
};

use super::failure;
use crate::{
    args::{PeerKeysArgs, RoleName},
    message,
    report::Failure,
};

/// Days that certificates count.
const AUTHORITY_DAYS: u32 = 3650;
const MACHINE_DAYS: u32 = 825;

pub(super) fn run(args: &PeerKeysArgs) -> Result<u8, Failure> {
    let dir = &args.dir;
    let told = match (&args.add, args.role) {
        (Some(name), Some(role)) => {
            let validity = Validity::days(args.days.unwrap_or(MACHINE_DAYS));
            keys::add(dir, name, Role::from(role), validity).map_err(failure)?;
            format!("{name}.pem, {name}.key")
        }
        _ => {
            keys::make_authority(dir, Validity::days(args.days.unwrap_or(AUTHORITY_DAYS))).map_err(failure)?;
            format!("{}, {}, {}", keys::AUTHORITY_CERTIFICATE, keys::AUTHORITY_KEY, keys::DOMAIN_KEY)
        }
    };
    let dir = message::path_text(dir);
    writeln!(io::stdout(), "made in {dir}: {told}").map_err(|error| Failure::output(&error, 0))?;
    Ok(0)
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Client => Self::Client,
            RoleName::Scanner => Self::Scanner,
            RoleName::Server => Self::Server,
        }
    }
}
