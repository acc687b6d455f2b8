//! `onesweep plan`: the cost of reading, known before it begins.

use std::io::{self, Write};

use onesweep::{Indexes, Summary};

use crate::{
    args::PlanArgs,
    forecast::Forecast,
    report::Failure,
    session::{Session, StandardOutput},
};

pub(crate) fn run(args: PlanArgs) -> Result<u8, Failure> {
    let session = Session::start(args.common, StandardOutput::Data)?;
    session.check_roots(None, &args.paths)?;
    // What lies in the cache now may be gone when it is read. Rows of other orders than the chosen one want to know where the
    // data lies, too.
    let read = session.bulk_read(&args.paths)?.ignore_cache(true).addresses(true);
    let sweep = read.indexes(Indexes::Left).plan()?;
    let forecast = Forecast::of(&sweep, session.settings());
    sweep.errors().for_each(|error| session.complain_of(error));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if session.is_json() { forecast.write_json(&mut out) } else { forecast.write(&mut out) };
    written.and_then(|()| out.flush()).map_err(|error| session.output(&error))?;
    let dirty_files = sweep.files().filter(|file| file.marks.dirty).count() as u64;
    session.tell_of_doubts(&Summary { dirty_files, ..Summary::default() });
    if sweep.estimate().files == 0 {
        session.tell_of_unread(&args.paths);
    }
    if session.is_interrupted() {
        session.tell("interrupted");
    }
    Ok(session.exit_code())
}
