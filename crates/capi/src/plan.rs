//! Plans: made, looked at, carried out.

use std::{
    cell::RefCell,
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    rc::Rc,
};

use onesweep::{Cancel as Switch, Estimate as Cost, Sweep};

use crate::{
    bulk_read::{Counts, FileCallback, ONESWEEP_CONTINUE, Receiver, Roots, or_default},
    fault::{Code, Fault, ONESWEEP_ERROR_USED, guarded, look},
    ffi::{User, c_path, c_text, given, hand_out, pointer},
    file::{Failure, Told},
    options::{self, Options},
};

/// A planned sweep: to be looked at, then carried out. Not for several threads at a time.
pub struct Plan {
    /// None once it was carried out. Counted, since callbacks that look at it may look at it again.
    sweep: RefCell<Option<Rc<Sweep>>>,
    threads: usize,
    cancel: Switch,
}

/// What a plan costs.
#[repr(C)]
pub struct Estimate {
    /// Files with at least one byte to read.
    pub files: u64,
    /// Fragments.
    pub fragments: u64,
    /// Fragments whose place is not known.
    pub without_address: u64,
    /// Reads.
    pub requests: u64,
    /// Reads that don't begin where the one before ended.
    pub seeks: u64,
    /// Bytes of the blocks that files have.
    pub useful: u64,
    /// Bytes that come from the disk.
    pub read: u64,
    /// Those of them in gaps that are read through.
    pub wasted: u64,
    /// Bytes that aren't read, since files share them.
    pub copied: u64,
    /// Runs of rising addresses.
    pub passes: u64,
    /// Passes that leave files to the next.
    pub bins: u64,
    /// How often waiting files are completed before others begin.
    pub clean_ups: u64,
    /// The most bytes that files hold while they wait.
    pub peak_memory: u64,
    /// What that would be without a budget.
    pub peak_unlimited: u64,
    /// The time of the disk model; of several disks, which work side by side, that of the slowest.
    pub seconds: f64,
    /// For later versions; 0.
    pub reserved: [u64; 4],
}

/// The plan of one disk; all valid during the callback.
#[repr(C)]
pub struct DiskPlan {
    /// The disks below, by their kernel names, joined with `+`.
    pub disk: *const c_char,
    /// The order that was chosen: one of the ONESWEEP_ORDER_ constants, never AUTO.
    pub order: u32,
    /// Why it isn't by fragment, when addresses mean nothing or the disk has no seeks; else NULL.
    pub remark: *const c_char,
    /// What it costs.
    pub estimate: Estimate,
}

/// One file of a plan; all valid during the callback.
#[repr(C)]
pub struct PlannedFile {
    /// The path.
    pub path: *const c_char,
    /// The disk, by its kernel name.
    pub disk: *const c_char,
    /// Whether `address` is known.
    pub has_address: bool,
    /// The address on the device that gives it its place, in bytes.
    pub address: u64,
    /// Fragments.
    pub fragments: u32,
    /// Bytes.
    pub size: u64,
    /// Whether its file system was not closed.
    pub is_dirty: bool,
    /// Whether it comes as it is encrypted on the disk.
    pub is_encrypted: bool,
}

/// Takes the plan of each disk.
pub type DiskPlanCallback = Option<unsafe extern "C" fn(user: *mut c_void, plan: *const DiskPlan) -> c_int>;

/// Takes each file of a plan, in the order of reading.
pub type PlannedFileCallback = Option<unsafe extern "C" fn(user: *mut c_void, file: *const PlannedFile) -> c_int>;

/// Takes each failure.
pub type FailureCallback = Option<unsafe extern "C" fn(user: *mut c_void, failure: *const Failure) -> c_int>;

impl Estimate {
    fn of(cost: &Cost) -> Self {
        Self {
            files: cost.files,
            fragments: cost.fragments,
            without_address: cost.without_address,
            requests: cost.requests,
            seeks: cost.seeks,
            useful: cost.useful,
            read: cost.read,
            wasted: cost.wasted,
            copied: cost.copied,
            passes: cost.passes,
            bins: cost.bins,
            clean_ups: cost.clean_ups,
            peak_memory: cost.peak_memory,
            peak_unlimited: cost.peak_unlimited,
            seconds: cost.seconds,
            reserved: [0; 4],
        }
    }
}

fn used() -> Fault {
    Fault::new(ONESWEEP_ERROR_USED, "the plan was carried out already, or a call that looks at it has not returned")
}

impl Plan {
    fn make(roots: Roots, options: Option<&Options>) -> Result<Self, Fault> {
        let options = or_default(options);
        let (read, cancel) = options.begin();
        let sweep = roots.of(read).plan()?;
        Ok(Self { sweep: RefCell::new(Some(Rc::new(sweep))), threads: options.threads, cancel })
    }

    /// The plan, to be looked at.
    fn sweep(&self) -> Result<Rc<Sweep>, Fault> {
        self.sweep.borrow().clone().ok_or_else(used)
    }

    /// The plan, to be carried out: nobody may look at it.
    fn take(&self) -> Result<Sweep, Fault> {
        let mut sweep = self.sweep.borrow_mut();
        Rc::try_unwrap(sweep.take().ok_or_else(used)?).map_err(|shared| {
            *sweep = Some(shared);
            used()
        })
    }
}

/// Gives members of a list to C until there are no more or C wants none.
pub(crate) fn each<T>(members: impl IntoIterator<Item = T>, mut give: impl FnMut(T) -> c_int) -> Result<(), Fault> {
    for member in members {
        if give(member) != ONESWEEP_CONTINUE {
            return Err(Fault::cancelled());
        }
    }
    Ok(())
}

/// Walks, maps and plans a sweep of all named paths; reads no content. Of a tree larger than the limit of names
/// (`onesweep_options_set_catalog_limit`) it is the plan of the first part. `plan` gets a handle, or NULL when the call fails.
///
/// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, DEVICE, SNAPSHOT, SYSTEM. All else is a failure of the plan
/// (`onesweep_plan_failures`). A plan that was cancelled while it was made is ONESWEEP_OK and not whole.
///
/// # Safety
///
/// `paths` has `path_count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_plan_new(
    paths: *const *const c_char,
    path_count: usize,
    options: Option<&Options>,
    plan: Option<&mut MaybeUninit<*mut Plan>>,
) -> Code {
    // SAFETY: the caller promises it.
    guarded(|| hand_out(plan, || Plan::make(unsafe { Roots::of_paths(paths, path_count) }?, options)))
}

/// The same for open directories and files, as of `onesweep_bulk_read_fd`. They may be closed afterwards.
///
/// # Safety
///
/// `fds` has `fd_count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_plan_new_fd(
    fds: *const c_int,
    fd_count: usize,
    options: Option<&Options>,
    plan: Option<&mut MaybeUninit<*mut Plan>>,
) -> Code {
    // SAFETY: the caller promises it.
    guarded(|| hand_out(plan, || Plan::make(unsafe { Roots::of_descriptors(fds, fd_count) }?, options)))
}

/// Frees a plan, carried out or not. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_free(plan: Option<Box<Plan>>) {
    look((), || drop(plan));
}

/// What the plan costs, on all disks together.
///
/// Errors: ARGUMENT, USED.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_estimate(plan: Option<&Plan>, estimate: Option<&mut MaybeUninit<Estimate>>) -> Code {
    guarded(|| {
        let (plan, estimate) = (given(plan, "the plan")?, given(estimate, "the estimate")?);
        estimate.write(Estimate::of(&plan.sweep()?.estimate()));
        Ok(())
    })
}

/// What the same files would cost in another order and by another strategy; ONESWEEP_STRATEGY_AUTO is UNMERGED here.
///
/// Errors: ARGUMENT, USED.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_estimate_with(
    plan: Option<&Plan>,
    order: u32,
    strategy: u32,
    estimate: Option<&mut MaybeUninit<Estimate>>,
) -> Code {
    guarded(|| {
        let (plan, estimate) = (given(plan, "the plan")?, given(estimate, "the estimate")?);
        let (order, strategy) = (options::order(order)?, options::strategy(strategy)?.unwrap_or_default());
        estimate.write(Estimate::of(&plan.sweep()?.estimate_with(order, strategy)));
        Ok(())
    })
}

/// Gives the plan of each disk to the callback.
///
/// Errors: ARGUMENT, USED, CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_disks(plan: Option<&Plan>, callback: DiskPlanCallback, user: *mut c_void) -> Code {
    let user = User(user);
    guarded(|| {
        let (plan, callback) = (given(plan, "the plan")?, given(callback, "the callback")?);
        each(plan.sweep()?.disks(), |disk| {
            let (name, remark) = (c_text(disk.disk), disk.remark.map(c_text));
            let disk = DiskPlan {
                disk: name.as_ptr(),
                order: options::number_of_order(disk.order),
                remark: pointer(remark.as_ref()),
                estimate: Estimate::of(&disk.estimate),
            };
            // SAFETY: C's callback, with what C wants it to get; what the plan points to lives until it returns.
            unsafe { callback(user.get(), &raw const disk) }
        })
    })
}

/// Gives each file to the callback, in the order in which they will be read.
///
/// Errors: ARGUMENT, USED, CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_files(plan: Option<&Plan>, callback: PlannedFileCallback, user: *mut c_void) -> Code {
    let user = User(user);
    guarded(|| {
        let (plan, callback) = (given(plan, "the plan")?, given(callback, "the callback")?);
        each(plan.sweep()?.files(), |planned| {
            let (path, disk) = (c_path(&planned.path), c_text(planned.disk));
            let file = PlannedFile {
                path: path.as_ptr(),
                disk: disk.as_ptr(),
                has_address: planned.address.is_some(),
                address: planned.address.unwrap_or(0),
                fragments: planned.fragments,
                size: planned.size,
                is_dirty: planned.marks.dirty,
                is_encrypted: planned.marks.encrypted,
            };
            // SAFETY: C's callback, with what C wants it to get; what the file points to lives until it returns.
            unsafe { callback(user.get(), &raw const file) }
        })
    })
}

/// Gives each failure that was met while the plan was made to the callback. `onesweep_plan_run` hands them over, too.
///
/// Errors: ARGUMENT, USED, CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_failures(plan: Option<&Plan>, callback: FailureCallback, user: *mut c_void) -> Code {
    let user = User(user);
    guarded(|| {
        let (plan, callback) = (given(plan, "the plan")?, given(callback, "the callback")?);
        each(plan.sweep()?.errors(), |error| {
            let told = Told::of(error);
            // SAFETY: C's callback, with what C wants it to get; what the failure points to lives until it returns.
            unsafe { callback(user.get(), told.failure()) }
        })
    })
}

/// Whether the tree was larger than the limit of names, so that this is the plan of its first part. False for NULL, and when it
/// was carried out.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_is_partial(plan: Option<&Plan>) -> bool {
    look(false, || plan.and_then(|plan| plan.sweep().ok()).is_some_and(|sweep| sweep.is_partial()))
}

/// Carries the plan out, once: as `onesweep_bulk_read`, with the options that it was made with.
///
/// Errors: ARGUMENT, USED, SYSTEM; CANCELLED when it ended early.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_plan_run(
    plan: Option<&Plan>,
    callback: FileCallback,
    user: *mut c_void,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Code {
    guarded(|| {
        let (plan, receiver) = (given(plan, "the plan")?, Receiver::new(callback, user)?);
        let files = plan.take()?.run()?;
        receiver.receive(files, plan.threads, &plan.cancel, counts)
    })
}
