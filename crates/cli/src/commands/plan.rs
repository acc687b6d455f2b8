//! `onesweep plan`: the cost of reading, known before it begins.

use std::io::{self, Write};

use crate::{
    args::PlanArgs,
    forecast::Forecast,
    report::{self, Failure},
    session::{Session, StandardOutput},
};

pub(crate) fn run(args: PlanArgs) -> Result<u8, Failure> {
    let session = Session::start(args.common, StandardOutput::Data)?;
    session.check_roots(None, &args.paths, false)?;
    let sweep = session.bulk_read(&args.paths)?.plan()?;
    let forecast = Forecast::of(&sweep, session.settings());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if session.is_json() { forecast.write_json(&mut out) } else { forecast.write(&mut out) };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    let errors = sweep.errors();
    errors.iter().for_each(|error| session.complain(error));
    Ok(report::exit_code(session.is_interrupted(), errors.len() as u64))
}
