//! What a sweep is told to do, by the names of the command line.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, time::Duration};

use onesweep::{
    BulkRead, CachePolicy, Cancel, DiskModel, Entries, Filter, MetadataSource, Order, Part, Reassembly, Strategy,
};
use onesweep_layout::size::Size;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyString},
};

use super::paths::{self, Named, Style};

/// A read that is described, and what else is to be known of it.
pub(crate) struct Options {
    pub(crate) read: BulkRead,
    pub(crate) style: Style,
    pub(crate) disk: DiskModel,
    pub(crate) cancel: Cancel,
    filter: Filter,
}

impl Options {
    /// Of what is named and of keyword arguments, each of which must be known.
    pub(crate) fn of(named: &Bound<'_, PyAny>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let named = Named::of(named)?;
        let cancel = Cancel::new();
        let mut options = Self {
            style: named.style,
            read: named.of_read(BulkRead::new(std::iter::empty::<&str>())).cancel(cancel.clone()),
            disk: DiskModel::default(),
            cancel,
            filter: Filter::new(),
        };
        let (mut reassembly, mut threshold) = (None, None);
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            if value.is_none() {
                // As if it were left out; but a name that is wrong stays wrong.
                options.set(&name, None, &mut reassembly, &mut threshold)?;
            } else {
                options.set(&name, Some(&value), &mut reassembly, &mut threshold)?;
            }
        }
        options.read = options.read.filter(std::mem::take(&mut options.filter));
        options.read = match (reassembly, threshold) {
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err(
                    "a threshold is a way of reassembly by itself; leave out one of both",
                ));
            }
            (Some(reassembly), None) => options.read.reassembly(reassembly),
            (None, Some(threshold)) => options.read.reassembly(Reassembly::Threshold(threshold)),
            (None, None) => options.read,
        };
        Ok(options)
    }

    fn set(
        &mut self,
        name: &str,
        value: Option<&Bound<'_, PyAny>>,
        reassembly: &mut Option<Reassembly>,
        threshold: &mut Option<u64>,
    ) -> PyResult<()> {
        let read = self.read.clone();
        macro_rules! given {
            ($value:ident => $change:expr) => {
                match value {
                    Some($value) => $change,
                    None => read,
                }
            };
        }
        self.read = match name {
            "budget" => given!(v => read.budget(size(v)?)),
            "large" => given!(v => read.large(size(v)?)),
            "catalog_limit" => given!(v => read.catalog_limit(size(v)?)),
            "order" => given!(v => read.order(parsed::<Order>(v)?)),
            "strategy" => given!(v => read.strategy(parsed::<Strategy>(v)?)),
            "reassembly" => given!(v => {
                *reassembly = Some(choice("way of reassembly", v, &[
                    ("auto", Reassembly::Auto),
                    ("deferred", Reassembly::Deferred),
                    ("on-demand", Reassembly::OnDemand),
                    ("first-fit", Reassembly::FirstFit),
                ])?);
                read
            }),
            "threshold" => given!(v => {
                *threshold = Some(size(v)?);
                read
            }),
            "metadata" => given!(v => read.metadata(parsed::<MetadataSource>(v)?)),
            "entries" => given!(v => read.entries(choice("choice of entries", v, &[
                ("files", Entries::Files),
                ("all", Entries::All),
            ])?)),
            "cache" => given!(v => read.cache(choice("policy for the page cache", v, &[
                ("untouched", CachePolicy::Untouched),
                ("fill", CachePolicy::Fill),
            ])?)),
            "device" => given!(v => read.device(v.extract()?)),
            "snapshot" => given!(v => read.snapshot(v.extract()?)),
            "freeze_limit" => given!(v => read.freeze_limit(seconds(v)?)),
            "one_file_system" => given!(v => read.one_file_system(v.extract()?)),
            "follow_roots" => given!(v => read.follow_roots(v.extract()?)),
            "gitignore" => given!(v => read.gitignore(v.extract()?)),
            "recursive" => given!(v => read.no_recursion(!v.extract::<bool>()?)),
            "exclude" => given!(v => {
                exclude(v, &mut self.filter)?;
                read
            }),
            "part" => given!(v => {
                self.filter.part(part(v)?);
                read
            }),
            "xattrs" => given!(v => read.xattrs(v.extract()?)),
            "ignore_cache" => given!(v => read.ignore_cache(v.extract()?)),
            "addresses" => given!(v => read.addresses(v.extract()?)),
            "force_dirty" => given!(v => read.force_dirty(v.extract()?)),
            "logdev" => given!(v => read.logdev(paths::path(v)?.0)),
            "rtdev" => given!(v => read.rtdev(paths::path(v)?.0)),
            "lost" => given!(v => read.lost(v.extract()?)),
            "bwlimit" => given!(v => read.bwlimit(size(v)?)),
            "idle" => given!(v => read.idle(v.extract()?)),
            "queue_depth" => given!(v => read.queue_depth(v.extract()?)),
            "one_at_a_time" => given!(v => read.one_at_a_time(v.extract()?)),
            "in_batches" => given!(v => read.in_batches(v.extract()?)),
            "gap" => given!(v => read.gap(size(v)?)),
            "max_request" => given!(v => read.max_request(size(v)?)),
            "base" => given!(v => read.base(paths::path(v)?.0)),
            "disk" => given!(v => {
                let name: String = v.extract()?;
                let unknown = || {
                    let names: Vec<_> = DiskModel::names().collect();
                    PyValueError::new_err(format!("unknown disk model '{name}'; use one of {}", names.join(", ")))
                };
                self.disk = DiskModel::named(&name).ok_or_else(unknown)?;
                read.disk_model(self.disk.clone())
            }),
            _ => return Err(PyTypeError::new_err(format!("unexpected keyword argument '{name}'"))),
        };
        Ok(())
    }
}

/// The same for code of this package that is written in Python.
#[pyfunction]
#[pyo3(name = "_bytes_of")]
pub(crate) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    size(value)
}

/// A number of bytes, or a text like "256M".
fn size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    match value.cast::<PyString>() {
        Ok(text) => text.to_cow()?.parse::<Size>().map(|size| size.0).map_err(PyValueError::new_err),
        Err(_) => value.extract(),
    }
}

fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// One of several, by its name.
pub(crate) fn parsed<T: std::str::FromStr<Err = String>>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    value.extract::<String>()?.parse().map_err(PyValueError::new_err)
}

fn choice<T: Copy>(what: &str, value: &Bound<'_, PyAny>, choices: &[(&str, T)]) -> PyResult<T> {
    let name: String = value.extract()?;
    let found = choices.iter().find(|(known, _)| *known == name).map(|&(_, choice)| choice);
    found.ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!("unknown {what} '{name}'; use one of {}", names.join(", ")))
    })
}

/// Number, how many there are, and the seed, which may be left out.
fn part(value: &Bound<'_, PyAny>) -> PyResult<Part> {
    let (index, of, seed) = match value.extract::<(u32, u32)>() {
        Ok((index, of)) => (index, of, 0),
        Err(_) => value.extract::<(u32, u32, u64)>()?,
    };
    Part::new(index, of, seed).map_err(PyValueError::new_err)
}

/// One pattern or several, as text or bytes.
fn exclude(value: &Bound<'_, PyAny>, filter: &mut Filter) -> PyResult<()> {
    let mut add = |pattern: &Bound<'_, PyAny>| {
        match pattern.cast::<PyBytes>() {
            Ok(bytes) => filter.exclude(bytes.as_bytes()),
            Err(_) => filter.exclude(pattern.extract::<OsString>()?.as_bytes()),
        }
        Ok::<(), PyErr>(())
    };
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        add(value)?;
    } else {
        for pattern in value.try_iter()? {
            add(&pattern?)?;
        }
    }
    Ok(())
}
