//! Where a server keeps what it knows of its sessions: PostgreSQL's own structures, as a 64-bit little-endian compiler lays them
//! out. (src/include/utils/backend_status.h, pgstat.h before 14: PgBackendStatus; src/include/storage/proc.h: PGPROC, PROC_HDR;
//! src/include/storage/pg_shmem.h: PGShmemHeader.) Nothing here is believed before it was held against the server's own words.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a segment of PostgreSQL's begins with (PGShmemMagic).
pub(super) const MAGIC: u32 = 679_834_894;
/// The beginning of a segment: magic number, creator, size.
pub(super) const SEGMENT_HEAD_BYTES: usize = 16;
/// The beginning of PROC_HDR, as far as it is read: the array's place, and further on how long it is.
pub(super) const PROCS_HEAD_BYTES: usize = 40;

/// The offsets that differ from major to major, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of one PgBackendStatus to the next.
    pub(super) status_bytes: usize,
    /// st_query_id.
    query_id_at: Option<usize>,
    /// Whether STATE_STARTING comes before the other states.
    pub(super) has_starting: bool,
    /// allProcCount in PROC_HDR.
    proc_count_at: usize,
    /// Of one PGPROC to the next.
    pub(super) proc_bytes: usize,
    /// pid in PGPROC.
    pub(super) proc_pid_at: usize,
    /// wait_event_info in PGPROC.
    pub(super) proc_wait_at: usize,
}

impl Layout {
    /// Of this major; none where it is not known, or where pg_shmem_allocations is not there (12).
    pub(super) fn of(major: i32) -> Option<Layout> {
        let is_known = cfg!(all(target_endian = "little", target_pointer_width = "64"));
        let base = Layout {
            status_bytes: 432,
            query_id_at: Some(424),
            has_starting: false,
            proc_count_at: 32,
            proc_bytes: 880,
            proc_pid_at: 64,
            proc_wait_at: 712,
        };
        let of_major = match major {
            13 => Layout {
                status_bytes: 424,
                query_id_at: None,
                proc_count_at: 16,
                proc_bytes: 856,
                proc_pid_at: 52,
                proc_wait_at: 684,
                ..base
            },
            14..=16 => base,
            17 => Layout { proc_bytes: 888, proc_pid_at: 60, ..base },
            18 => Layout { status_bytes: 440, has_starting: true, proc_bytes: 832, proc_pid_at: 60, ..base },
            _ => return None,
        };
        is_known.then_some(of_major)
    }

    /// Where the array of PGPROC stands, and how many there are.
    pub(super) fn procs(&self, head: &[u8]) -> Option<(u64, usize)> {
        Some((long_at(head, 0)?, usize::try_from(word_at(head, self.proc_count_at)?).ok()?))
    }
}

/// The size of a segment that begins so; none where it is no segment of PostgreSQL's.
pub(super) fn segment_bytes(head: &[u8]) -> Option<u64> {
    if word_at(head, 0)? == MAGIC { long_at(head, 8) } else { None }
}

pub(super) fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn long_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|long| u64::from_le_bytes(*long))
}

/// One session's PgBackendStatus. Its bytes are [`Layout::status_bytes`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Status<'m> {
    bytes: &'m [u8],
    layout: Layout,
}

impl<'m> Status<'m> {
    pub(super) fn of(bytes: &'m [u8], layout: Layout) -> Status<'m> {
        Status { bytes, layout }
    }

    fn word(&self, at: usize) -> u32 {
        word_at(self.bytes, at).unwrap_or_default()
    }

    fn long(&self, at: usize) -> u64 {
        long_at(self.bytes, at).unwrap_or_default()
    }

    /// A timestamptz; none where it is zero.
    fn time(&self, at: usize) -> Option<i64> {
        Some(self.long(at).cast_signed()).filter(|time| *time != 0)
    }

    /// st_changecount: another one whenever its session has written anything, and odd while it does.
    pub(super) fn count(&self) -> u32 {
        self.word(0)
    }

    /// st_procpid: 0 where no session uses this one.
    pub(super) fn pid(&self) -> i32 {
        self.word(4).cast_signed()
    }

    /// st_backendType: another number for the same in each major.
    pub(super) fn kind(&self) -> u32 {
        self.word(8)
    }

    /// st_proc_start_timestamp.
    pub(super) fn began(&self) -> Option<i64> {
        self.time(16)
    }

    /// st_xact_start_timestamp.
    pub(super) fn transaction_begun(&self) -> Option<i64> {
        self.time(24)
    }

    /// st_activity_start_timestamp.
    pub(super) fn statement_begun(&self) -> Option<i64> {
        self.time(32)
    }

    /// st_databaseid.
    pub(super) fn database(&self) -> Option<u32> {
        Some(self.word(48)).filter(|oid| *oid != 0)
    }

    /// st_userid.
    pub(super) fn role(&self) -> Option<u32> {
        Some(self.word(52)).filter(|oid| *oid != 0)
    }

    /// st_clientaddr, a sockaddr_storage: the client's address and port; none by a Unix socket.
    pub(super) fn client(&self) -> Option<(IpAddr, u16)> {
        const AF_INET: u16 = 2;
        const AF_INET6: u16 = 10;
        let family = u16::from_le_bytes(*self.bytes.get(56..)?.first_chunk()?);
        let port = u16::from_be_bytes(*self.bytes.get(58..)?.first_chunk()?);
        let address = match family {
            AF_INET => Ipv4Addr::from(*self.bytes.get(60..)?.first_chunk::<4>()?).into(),
            AF_INET6 => Ipv6Addr::from(*self.bytes.get(64..)?.first_chunk::<16>()?).into(),
            _ => return None,
        };
        Some((address, port))
    }

    /// st_state as pg_stat_activity has it: empty where it has none; none for a number that is no state's.
    pub(super) fn state(&self) -> Option<&'static str> {
        const STATES: [&str; 7] = [
            "",
            "idle",
            "active",
            "idle in transaction",
            "fastpath function call",
            "idle in transaction (aborted)",
            "disabled",
        ];
        match (self.word(232), self.layout.has_starting) {
            (0, _) => Some(STATES[0]),
            (1, true) => Some("starting"),
            (number, has_starting) => STATES.get(usize::try_from(number - u32::from(has_starting)).ok()?).copied(),
        }
    }

    /// Where its application_name stands (st_appname).
    pub(super) fn application_at(&self) -> u64 {
        self.long(240)
    }

    /// Where its statement's text stands (st_activity_raw).
    pub(super) fn text_at(&self) -> u64 {
        self.long(248)
    }

    /// st_query_id; none before 14, and where none was computed.
    pub(super) fn query_id(&self) -> Option<i64> {
        self.time(self.layout.query_id_at?)
    }
}

/// A text up to its NUL. One that was cut within a character ends before it; one in another encoding than UTF-8 is none.
pub(super) fn text_in(bytes: &[u8]) -> Option<&str> {
    let bytes = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}
