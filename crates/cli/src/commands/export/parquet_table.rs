//! Rows as a file of Apache Parquet: row groups of so many rows are kept in memory, column by column, then written.

use std::{io::Write, sync::Arc};

use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};

use super::record::{Record, Text};

/// Some 20 MiB in memory.
const GROUP_ROWS: usize = 32_768;
/// The same of pairs of key and value, all of them together.
const GROUP_PAIRS: usize = 131_072;

/// Files of hosts that declare other summaries have the same columns: so pairs are a list, not a column for each key.
const SCHEMA: &str = "
message directories {
  required binary host (STRING);
  required binary file_system (STRING);
  required int64 exported_at (TIMESTAMP(MICROS, true));
  required binary directory_id (STRING);
  optional binary parent_id (STRING);
  required binary name (STRING);
  optional binary name_bytes;
  optional binary path (STRING);
  optional binary path_bytes;
  required int32 depth;
  required int64 apparent_bytes;
  required int64 allocated_bytes;
  required int64 files;
  required int64 directories;
  required int64 others;
  optional int64 newest_change (TIMESTAMP(MICROS, true));
  optional int64 largest_file;
  required int64 own_apparent_bytes;
  required int64 own_allocated_bytes;
  required int64 own_files;
  required int64 own_others;
  required boolean partial;
  required boolean unreadable;
  required int64 counted_at (TIMESTAMP(MICROS, true));
  required group keys (LIST) {
    repeated group list {
      required group element {
        required binary summary (STRING);
        required binary by (STRING);
        optional binary key (STRING);
        optional binary key_bytes;
        optional binary label (STRING);
        optional int64 inodes;
        optional int64 apparent_bytes;
        optional int64 allocated_bytes;
        optional int64 value;
      }
    }
  }
  required boolean keys_unknown;
}";

/// A file that is being written.
pub(super) struct ParquetTable<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Columns,
}

impl<W: Write + Send> ParquetTable<W> {
    pub(super) fn new(out: W) -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by(concat!("onesweep ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(Self { writer, columns: Columns::default() })
    }

    pub(super) fn add(&mut self, record: &Record<'_>) -> Result<(), ParquetError> {
        self.columns.add(record);
        let is_full = self.columns.rows() >= GROUP_ROWS || self.columns.summary.values.len() >= GROUP_PAIRS;
        if is_full { self.write_group() } else { Ok(()) }
    }

    /// Writes what is left and the end of the file.
    pub(super) fn finish(mut self) -> Result<W, ParquetError> {
        if self.columns.rows() > 0 {
            self.write_group()?;
        }
        self.writer.into_inner()
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        std::mem::take(&mut self.columns).write(&mut group)?;
        group.close().map(drop)
    }
}

/// The values of a column, and for each row whether it has one; that is empty where all have.
struct Column<T> {
    values: Vec<T>,
    levels: Option<Vec<i16>>,
}

impl<T> Column<T> {
    fn required() -> Self {
        Self { values: Vec::new(), levels: None }
    }

    fn optional() -> Self {
        Self { values: Vec::new(), levels: Some(Vec::new()) }
    }

    fn push(&mut self, value: T) {
        self.values.push(value);
    }

    fn push_some(&mut self, value: Option<T>) {
        if let Some(levels) = &mut self.levels {
            levels.push(value.is_some().into());
        }
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>, W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<D>().write_batch(&self.values, self.levels.as_deref(), None)?;
        column.close()
    }
}

/// A field of what rows have several of, or none.
struct Listed<T> {
    values: Vec<T>,
    /// How much of it is there: nothing, a place without a value, a value. Where values are never missing, nothing or a value.
    definitions: Vec<i16>,
    /// Whether it belongs to the row of the one before.
    repetitions: Vec<i16>,
    value_level: i16,
}

impl<T> Listed<T> {
    fn required() -> Self {
        Self { values: Vec::new(), definitions: Vec::new(), repetitions: Vec::new(), value_level: 1 }
    }

    fn optional() -> Self {
        Self { value_level: 2, ..Self::required() }
    }

    fn push_row(&mut self, row: impl Iterator<Item = Option<T>>) {
        let before = self.definitions.len();
        for value in row {
            self.repetitions.push((self.definitions.len() > before).into());
            self.definitions.push(if value.is_some() { self.value_level } else { 1 });
            self.values.extend(value);
        }
        if self.definitions.len() == before {
            self.repetitions.push(0);
            self.definitions.push(0);
        }
    }

    fn write<D: DataType<T = T>, W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<D>().write_batch(&self.values, Some(&self.definitions), Some(&self.repetitions))?;
        column.close()
    }
}

fn missing() -> ParquetError {
    ParquetError::General("a column too many".to_owned())
}

/// In the order of the schema.
struct Columns {
    host: Column<ByteArray>,
    file_system: Column<ByteArray>,
    exported_at: Column<i64>,
    directory_id: Column<ByteArray>,
    parent_id: Column<ByteArray>,
    name: Column<ByteArray>,
    name_bytes: Column<ByteArray>,
    path: Column<ByteArray>,
    path_bytes: Column<ByteArray>,
    depth: Column<i32>,
    totals: [Column<i64>; 5],
    newest_change: Column<i64>,
    largest_file: Column<i64>,
    own: [Column<i64>; 4],
    partial: Column<bool>,
    unreadable: Column<bool>,
    counted_at: Column<i64>,
    summary: Listed<ByteArray>,
    by: Listed<ByteArray>,
    key: Listed<ByteArray>,
    key_bytes: Listed<ByteArray>,
    label: Listed<ByteArray>,
    amounts: [Listed<i64>; 4],
    keys_unknown: Column<bool>,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            host: Column::required(),
            file_system: Column::required(),
            exported_at: Column::required(),
            directory_id: Column::required(),
            parent_id: Column::optional(),
            name: Column::required(),
            name_bytes: Column::optional(),
            path: Column::optional(),
            path_bytes: Column::optional(),
            depth: Column::required(),
            totals: std::array::from_fn(|_| Column::required()),
            newest_change: Column::optional(),
            largest_file: Column::optional(),
            own: std::array::from_fn(|_| Column::required()),
            partial: Column::required(),
            unreadable: Column::required(),
            counted_at: Column::required(),
            summary: Listed::required(),
            by: Listed::required(),
            key: Listed::optional(),
            key_bytes: Listed::optional(),
            label: Listed::optional(),
            amounts: std::array::from_fn(|_| Listed::optional()),
            keys_unknown: Column::required(),
        }
    }
}

impl Columns {
    fn rows(&self) -> usize {
        self.depth.values.len()
    }

    fn add(&mut self, record: &Record<'_>) {
        let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        let exact = |text: &Text| text.bytes.clone().map(ByteArray::from);
        self.host.push(bytes(record.host));
        self.file_system.push(bytes(record.file_system));
        self.exported_at.push(micros(record.exported_at).unwrap_or(0));
        self.directory_id.push(bytes(&record.directory_id));
        self.parent_id.push_some(record.parent_id.as_deref().map(bytes));
        self.name.push(bytes(&record.name.text));
        self.name_bytes.push_some(exact(&record.name));
        self.path.push_some(record.path.as_ref().map(|path| bytes(&path.text)));
        self.path_bytes.push_some(record.path.as_ref().and_then(exact));
        self.depth.push(record.depth);
        let totals = [record.apparent_bytes, record.allocated_bytes, record.files, record.directories, record.others];
        self.totals.iter_mut().zip(totals).for_each(|(column, value)| column.push(value));
        self.newest_change.push_some(record.newest_change.and_then(micros));
        self.largest_file.push_some(record.largest_file);
        let own = [record.own_apparent_bytes, record.own_allocated_bytes, record.own_files, record.own_others];
        self.own.iter_mut().zip(own).for_each(|(column, value)| column.push(value));
        self.partial.push(record.partial);
        self.unreadable.push(record.unreadable);
        self.counted_at.push(micros(record.counted_at).unwrap_or(0));
        let pairs = || record.keys.iter();
        self.summary.push_row(pairs().map(|pair| Some(bytes(pair.summary))));
        self.by.push_row(pairs().map(|pair| Some(bytes(pair.by.name()))));
        self.key.push_row(pairs().map(|pair| pair.key.as_deref().map(bytes)));
        self.key_bytes.push_row(pairs().map(|pair| pair.key_bytes.clone().map(ByteArray::from)));
        self.label.push_row(pairs().map(|pair| pair.label.as_deref().map(bytes)));
        let [inodes, apparent, allocated, value] = &mut self.amounts;
        inodes.push_row(pairs().map(|pair| pair.inodes));
        apparent.push_row(pairs().map(|pair| pair.apparent_bytes));
        allocated.push_row(pairs().map(|pair| pair.allocated_bytes));
        value.push_row(pairs().map(|pair| pair.value));
        self.keys_unknown.push(record.keys_unknown);
    }

    fn write<W: Write + Send>(self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<(), ParquetError> {
        self.host.write::<ByteArrayType, W>(group)?;
        self.file_system.write::<ByteArrayType, W>(group)?;
        self.exported_at.write::<Int64Type, W>(group)?;
        self.directory_id.write::<ByteArrayType, W>(group)?;
        self.parent_id.write::<ByteArrayType, W>(group)?;
        self.name.write::<ByteArrayType, W>(group)?;
        self.name_bytes.write::<ByteArrayType, W>(group)?;
        self.path.write::<ByteArrayType, W>(group)?;
        self.path_bytes.write::<ByteArrayType, W>(group)?;
        self.depth.write::<Int32Type, W>(group)?;
        self.totals.iter().try_for_each(|column| column.write::<Int64Type, W>(group))?;
        self.newest_change.write::<Int64Type, W>(group)?;
        self.largest_file.write::<Int64Type, W>(group)?;
        self.own.iter().try_for_each(|column| column.write::<Int64Type, W>(group))?;
        self.partial.write::<BoolType, W>(group)?;
        self.unreadable.write::<BoolType, W>(group)?;
        self.counted_at.write::<Int64Type, W>(group)?;
        let texts = [&self.summary, &self.by, &self.key, &self.key_bytes, &self.label];
        texts.iter().try_for_each(|column| column.write::<ByteArrayType, W>(group))?;
        self.amounts.iter().try_for_each(|column| column.write::<Int64Type, W>(group))?;
        self.keys_unknown.write::<BoolType, W>(group)
    }
}

/// Microseconds since 1970; `None` where there is no such number.
fn micros(seconds: i64) -> Option<i64> {
    seconds.checked_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::Field,
    };

    use super::{super::record, *};

    #[test]
    fn what_is_written_can_be_read_in_groups() {
        let (origin, head) = (record::tests::origin(), record::tests::head());
        let mut table = ParquetTable::new(tempfile::tempfile().unwrap()).unwrap();
        let count = GROUP_ROWS + 2;
        for number in 0..count as u32 {
            let mut entry = record::tests::entry(number, if number == 0 { b"" } else { b"a\xff" });
            entry.row.newest = (number > 0).then_some(i64::MAX);
            table.add(&record::tests::record(entry, &origin, &head)).unwrap();
        }
        let written = table.finish().unwrap();
        let length = written.metadata().unwrap().len() as usize;
        assert!(length < count * 20, "{length} bytes");
        let reader = SerializedFileReader::new(written).unwrap();
        let metadata = reader.metadata();
        assert_eq!((metadata.num_row_groups(), metadata.file_metadata().num_rows()), (2, count as i64));
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let field = |at: usize, name: &str| {
            rows[at].get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field.clone()).unwrap()
        };
        assert_eq!(
            [field(0, "parent_id"), field(0, "name_bytes"), field(0, "newest_change")],
            [Field::Null, Field::Null, Field::Null]
        );
        assert_eq!(field(0, "path"), Field::Str("/srv".to_owned()));
        let last = count - 1;
        assert_eq!(field(last, "path_bytes"), Field::Bytes(b"/srv/a\xff".to_vec().into()));
        assert_eq!(field(last, "directory_id"), Field::Str(format!("0.{last}.1")));
        // No such time, and no such size.
        assert_eq!([field(last, "newest_change"), field(last, "largest_file")], [Field::Null, Field::Null]);
        assert_eq!(field(last, "counted_at"), Field::TimestampMicros(1_600_000_000_000_000));
        assert_eq!((field(last, "unreadable"), field(last, "own_files")), (Field::Bool(true), Field::Long(1)));
    }
}
