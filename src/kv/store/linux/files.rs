//! Linux file operations: direct I/O, preallocation, free disk space.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::kv::store::format::ALIGN_BYTES;
use crate::kv::store::storage::retry_interrupted;

/// Opens an existing file for I/O past the page cache.
///
/// # Errors
/// The file system does not support direct access, or only with a larger alignment than the store has.
pub fn open_direct(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    // SAFETY: all-zero bytes are a valid statx. The call writes at most that struct, which outlives it. The empty path
    // is NUL-terminated.
    let (rc, stat) = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let rc = libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut stat);
        (rc, stat)
    };
    // Older kernels do not report the alignment; there the first access fails, see `Storage::stop_direct`.
    let is_reported = rc == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    let fits = |align: u32| align != 0 && u64::from(align) <= ALIGN_BYTES;
    if is_reported && !(fits(stat.stx_dio_mem_align) && fits(stat.stx_dio_offset_align)) {
        return Err(ErrorKind::Unsupported.into());
    }
    Ok(file)
}

/// Extends the file to `len` and reserves its blocks, so that a full disk fails here and not in the middle of a page.
///
/// # Errors
/// The error of the operating system. File systems without preallocation get a hole instead.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    let len_signed = i64::try_from(len).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?;
    retry_interrupted(|| {
        // SAFETY: only integers are passed, and `file` keeps the descriptor open.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len_signed) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
    .or_else(|e| match e.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => file.set_len(len),
        _ => Err(e),
    })
}

/// Free bytes for this user on the file system of `path`.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero bytes are a valid statvfs; the path is NUL-terminated; the call writes only that struct.
    let (rc, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat), stat)
    };
    #[allow(clippy::useless_conversion, reason = "narrower on 32-bit targets")]
    (rc == 0).then(|| u64::from(stat.f_bavail).saturating_mul(u64::from(stat.f_frsize)))
}
