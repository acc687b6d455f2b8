//! What is said of named paths before anything is read: that they are taken for something else than they seem to be.

use std::path::Path;

use onesweep::PathRemark;

use crate::message;

/// What to say of one.
pub(crate) fn of_path(root: &Path, remark: &PathRemark) -> String {
    let name = message::path_text(root);
    match remark {
        PathRemark::Image => {
            format!("{name}: an image; the files in it are read. --metadata walk takes it as one file")
        }
        PathRemark::Divided(numbers) => {
            let named: Vec<String> = numbers.iter().map(|number| format!("{name}@{number}")).collect();
            format!("{name}: a disk image, taken as one file; for the files in it name {}", named.join(", "))
        }
        PathRemark::Btrfs => {
            format!(
                "{name}: an image of btrfs, taken as one file; such images are not read: mount it for the files in it"
            )
        }
        PathRemark::Qcow2 => {
            format!("{name}: a qcow2 image, taken as one file; for the files in it attach it by qemu-nbd")
        }
        PathRemark::DeviceLink => {
            format!(
                "{name}: a symbolic link to a device, taken as the link; for the files there use --follow-roots, or name {name}:/"
            )
        }
        _ => format!("{name}: taken as one file"),
    }
}

/// What to say of options that are for images alone, where none is named.
pub(crate) fn of_idle(options: &[&str]) -> String {
    let verb = if options.len() == 1 { "means" } else { "mean" };
    let options = options.join(" and ");
    format!("{options} {verb} nothing here: no image and no unmounted device is read")
}
