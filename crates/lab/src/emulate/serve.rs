//! The second process: serves the disk.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::Spec;
use crate::disk::drive::Drive;
use crate::disk::geometry::Span;
use crate::fuse::DiskDir;
use crate::mount;
use crate::server::{Facts, Server};

/// Serves the disk until its directory is unmounted.
pub(crate) fn serve(json: &str) -> Result<u8, String> {
    let spec: Spec = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let session = match present(&spec) {
        Ok(session) => session,
        Err(complaint) => {
            println!("{complaint}");
            return Ok(1);
        }
    };
    println!("ready");
    let _ = std::io::stdout().flush();
    let dir = spec.dir.clone();
    thread::spawn(move || {
        // The first process never writes: this returns when it is gone.
        let _ = std::io::stdin().read(&mut [0]);
        mount::take_down(&dir);
    });
    session.0.join().map_err(|error| error.to_string())?;
    session.1.close();
    Ok(0)
}

/// Mounts the directory and starts the server's thread.
fn present(spec: &Spec) -> Result<(fuser::BackgroundSession, Arc<Server>), String> {
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let image = OpenOptions::new().read(true).write(!spec.read_only).open(&spec.image).map_err(said(&spec.image))?;
    let image_bytes = image.metadata().map_err(said(&spec.image))?.len();
    let trace = spec.trace.as_ref().map(|path| File::create(path).map_err(said(path))).transpose()?;
    let facts = Facts {
        model: spec.model.name.clone(),
        image_bytes,
        span: spec.span,
        track_buffer: spec.model.buffer_segments > 0,
        real: spec.real,
    };
    let drive = Drive::new(spec.model.clone(), image_bytes, Span { from: spec.span.0, to: spec.span.1 });
    let server = Server::new(image, drive, facts, trace).map_err(|error| error.to_string())?;
    for fault in &spec.faults {
        server.control(fault)?;
    }
    let mut config = fuser::Config::default();
    config.mount_options = vec![fuser::MountOption::FSName(mount::SHOWN.into())];
    let session = fuser::spawn_mount(DiskDir::new(Arc::clone(&server)), &spec.dir, &config).map_err(said(&spec.dir))?;
    let thread = Arc::clone(&server);
    thread::Builder::new()
        .name("disk".into())
        .spawn(move || {
            // A disk that stops answering would hang whatever stands on it: better no process at all.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.run())).is_err() {
                std::process::abort();
            }
        })
        .map_err(|error| error.to_string())?;
    Ok((session, server))
}
