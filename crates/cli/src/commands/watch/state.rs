//! What is shown, and what each key and each answer makes of it. No terminal, no clock, no disk.

use std::collections::HashMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    growth::Baseline,
    look::{Look, Measure, Seen, Sizes},
    source::{Missing, Wanted},
};

/// Entries of all directories whose sizes are kept to count growth from; some 100 bytes each.
const REMEMBERED_MAX: usize = 200_000;

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Size,
    Entries,
    Growth,
    Name,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// What is wanted has changed: ask at once.
    Ask,
    Quit,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) seen: Seen,
    pub(super) sizes: Sizes,
    pub(super) newest: Option<i64>,
    /// Since the directory that it is in was first shown; `None` where that isn't known.
    pub(super) grew: Option<i64>,
}

/// Where growth counts from in a directory, and which row was the selected one.
#[derive(Debug, Default)]
struct Place {
    baseline: Option<Baseline>,
    selected: Option<(bool, Vec<u8>)>,
}

/// The view.
#[derive(Debug)]
pub(super) struct State {
    /// The directory at the top, as it was named.
    pub(super) top: Vec<u8>,
    /// The names that lead to the one that is shown.
    pub(super) below: Vec<Vec<u8>>,
    pub(super) measure: Measure,
    pub(super) sort: Sort,
    /// It was walked once; else a server answers.
    pub(super) is_walked: bool,
    pub(super) look: Option<Look>,
    /// When that was answered, in seconds since 1970.
    pub(super) answered_at: i64,
    pub(super) rows: Vec<Row>,
    /// How much all of it has grown.
    pub(super) grew: Option<i64>,
    pub(super) selected: usize,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    /// What happened before the last key.
    pub(super) notice: Option<String>,
    places: HashMap<Vec<Vec<u8>>, Place>,
    /// Lines of the table that the terminal has room for.
    pub(super) page: usize,
}

impl State {
    pub(super) fn new(top: Vec<u8>, measure: Measure, is_walked: bool) -> State {
        State {
            top,
            below: Vec::new(),
            measure,
            sort: Sort::default(),
            is_walked,
            look: None,
            answered_at: 0,
            rows: Vec::new(),
            grew: None,
            selected: 0,
            trouble: None,
            notice: None,
            places: HashMap::new(),
            page: 1,
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted { below: self.below.clone(), by: self.measure, by_entries: self.sort == Sort::Entries }
    }

    /// The path that is shown.
    pub(super) fn path(&self) -> Vec<u8> {
        let mut path = self.top.clone();
        for name in &self.below {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend(name);
        }
        path
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Effect {
        let last = self.rows.len().saturating_sub(1);
        self.notice = None;
        match key.code {
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => return Effect::Quit,
            _ if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {}
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(self.page)),
            KeyCode::PageDown => self.select(self.selected + self.page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(last),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.enter(),
            KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h') => return self.leave(),
            KeyCode::Char('s') => return self.sort_by(Sort::Size),
            KeyCode::Char('e') => return self.sort_by(Sort::Entries),
            KeyCode::Char('g') => return self.sort_by(Sort::Growth),
            KeyCode::Char('n') => return self.sort_by(Sort::Name),
            KeyCode::Char('a') => {
                self.measure = match self.measure {
                    Measure::Allocated => Measure::Apparent,
                    Measure::Apparent => Measure::Allocated,
                };
                self.arrange();
                return Effect::Ask;
            }
            _ => {}
        }
        Effect::None
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
        let selected = self.rows.get(self.selected).map(|row| (row.is_directory, row.name.clone()));
        self.place().selected = selected;
    }

    fn place(&mut self) -> &mut Place {
        self.places.entry(self.below.clone()).or_default()
    }

    fn enter(&mut self) -> Effect {
        match self.rows.get(self.selected) {
            Some(row) if row.is_directory && row.seen != Seen::Nothing => {
                let name = row.name.clone();
                self.select(self.selected);
                self.below.push(name);
                self.forget_look();
                Effect::Ask
            }
            _ => Effect::None,
        }
    }

    fn leave(&mut self) -> Effect {
        let Some(name) = self.below.pop() else { return Effect::None };
        self.place().selected = Some((true, name));
        self.forget_look();
        Effect::Ask
    }

    fn forget_look(&mut self) {
        (self.look, self.trouble, self.grew) = (None, None, None);
        self.rows.clear();
        self.selected = 0;
    }

    fn sort_by(&mut self, sort: Sort) -> Effect {
        let before = self.wanted();
        self.sort = sort;
        self.arrange();
        if self.wanted() == before { Effect::None } else { Effect::Ask }
    }

    /// Takes in what came back for `wanted`; `now` in seconds since 1970.
    pub(super) fn answered(&mut self, wanted: &Wanted, answer: Result<Look, Missing>, now: i64) -> Effect {
        if wanted.below != self.below {
            return Effect::None;
        }
        match answer {
            Ok(look) => {
                self.place().baseline.get_or_insert_with(|| Baseline::of(&look));
                (self.look, self.answered_at, self.trouble) = (Some(look), now, None);
                self.arrange();
                self.forget_old_places();
                Effect::None
            }
            Err(Missing::Silent(why)) => {
                self.trouble = Some(format!("no answer: {why}"));
                Effect::None
            }
            Err(missing) => {
                let why = match missing {
                    Missing::Gone(why) => why,
                    _ => "it is on no file system that is tracked".to_owned(),
                };
                let effect = self.leave();
                let name = super::names::shown(wanted.below.last().unwrap_or(&self.top));
                let told = if effect == Effect::Ask { &mut self.notice } else { &mut self.trouble };
                *told = Some(format!("{name}: {why}"));
                effect
            }
        }
    }

    /// Makes the rows anew, in their order; the selected one stays selected.
    fn arrange(&mut self) {
        let Some(look) = &self.look else { return };
        let (measure, sort) = (self.measure, self.sort);
        let place = self.places.get(&self.below);
        let baseline = place.and_then(|place| place.baseline.as_ref());
        let row = |entry: &super::look::Entry| Row {
            name: entry.name.clone(),
            is_directory: entry.is_directory,
            seen: entry.seen,
            sizes: entry.sizes,
            newest: entry.newest,
            grew: baseline.and_then(|baseline| baseline.growth(entry, measure)),
        };
        let mut rows: Vec<Row> = look.entries.iter().map(row).collect();
        let key = |row: &Row| match sort {
            Sort::Size => row.sizes.by(measure),
            Sort::Entries => row.sizes.inodes,
            Sort::Growth => row.grew.unwrap_or(i64::MIN),
            Sort::Name => 0,
        };
        rows.sort_by(|one, other| {
            let by_size = || other.sizes.by(measure).cmp(&one.sizes.by(measure));
            let by_name = || one.name.cmp(&other.name).then(other.is_directory.cmp(&one.is_directory));
            match sort {
                Sort::Name => by_name(),
                _ => key(other).cmp(&key(one)).then_with(by_size).then_with(by_name),
            }
        });
        self.grew = baseline.map(|baseline| look.total.by(measure) - baseline.total.by(measure));
        let kept = place.and_then(|place| place.selected.as_ref()).and_then(|(is_directory, name)| {
            rows.iter().position(|row| row.is_directory == *is_directory && row.name == *name)
        });
        self.selected = kept.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
        self.rows = rows;
    }

    /// Of very many directories only those on the way to this one keep where growth counts from.
    fn forget_old_places(&mut self) {
        let entries = |place: &Place| 1 + place.baseline.as_ref().map_or(0, Baseline::len);
        if self.places.values().map(entries).sum::<usize>() > REMEMBERED_MAX {
            let below = self.below.clone();
            self.places.retain(|place, _| below.starts_with(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::look::Entry, *};

    fn entry(name: &str, is_directory: bool, allocated: i64, inodes: i64) -> Entry {
        let sizes = Sizes { allocated, apparent: 1000 - allocated, inodes };
        Entry { name: name.into(), is_directory, seen: Seen::Whole, sizes, newest: None }
    }

    fn look(entries: Vec<Entry>) -> Look {
        let mut total = Sizes::default();
        entries.iter().for_each(|entry| total.add(entry.sizes));
        Look { total, entries, exact: true, ..Look::default() }
    }

    fn three() -> Look {
        look(vec![entry("a", true, 300, 5), entry("b", true, 100, 70), entry("c", false, 200, 1)])
    }

    fn shown(state: &State) -> Vec<&str> {
        state.rows.iter().map(|row| str::from_utf8(&row.name).unwrap()).collect()
    }

    fn press(state: &mut State, keys: &[KeyCode]) -> Effect {
        keys.iter().map(|&key| state.key(key.into())).last().unwrap()
    }

    fn answer(state: &mut State, look: Look) {
        assert_eq!(state.answered(&state.wanted(), Ok(look), 100), Effect::None);
    }

    fn state() -> State {
        let mut state = State::new(b"/top".to_vec(), Measure::Allocated, false);
        answer(&mut state, three());
        state
    }

    #[test]
    fn keys_sort_and_choose_the_measure() {
        let mut state = state();
        assert_eq!(shown(&state), ["a", "c", "b"]);
        // Which ones are the largest is another question then.
        assert_eq!(press(&mut state, &[KeyCode::Char('e')]), Effect::Ask);
        assert_eq!(shown(&state), ["b", "a", "c"]);
        assert!(state.wanted().by_entries);
        assert_eq!(press(&mut state, &[KeyCode::Char('n')]), Effect::Ask);
        assert_eq!(shown(&state), ["a", "b", "c"]);
        assert_eq!(press(&mut state, &[KeyCode::Char('s')]), Effect::None);
        assert_eq!(press(&mut state, &[KeyCode::Char('a')]), Effect::Ask);
        assert_eq!((state.measure, shown(&state)), (Measure::Apparent, vec!["b", "c", "a"]));
    }

    #[test]
    fn growth_counts_from_the_first_look() {
        let mut state = state();
        assert_eq!(state.rows.iter().map(|row| row.grew).collect::<Vec<_>>(), [Some(0); 3]);
        let later = vec![
            entry("a", true, 290, 5),
            entry("b", true, 180, 70),
            entry("c", false, 200, 1),
            entry("new", false, 30, 1),
        ];
        answer(&mut state, look(later));
        press(&mut state, &[KeyCode::Char('g')]);
        assert_eq!(shown(&state), ["b", "new", "c", "a"]);
        let grown: Vec<_> = state.rows.iter().map(|row| row.grew).collect();
        assert_eq!(grown, [Some(80), Some(30), Some(0), Some(-10)]);
        assert_eq!(state.grew, Some(100));
        // What was not named then may have been there all the same.
        let mut other = State::new(b"/".to_vec(), Measure::Allocated, false);
        answer(&mut other, Look { rest_directories: 1, ..three() });
        answer(&mut other, look(vec![entry("a", true, 301, 5), entry("d", true, 5, 1), entry("f", false, 5, 1)]));
        let grown: Vec<_> = other.rows.iter().map(|row| row.grew).collect();
        assert_eq!((shown(&other), grown), (vec!["a", "d", "f"], vec![Some(1), None, Some(5)]));
    }

    #[test]
    fn directories_are_entered_and_left_and_the_selection_stays() {
        let mut state = state();
        assert_eq!(press(&mut state, &[KeyCode::Down, KeyCode::Enter]), Effect::None, "c is a file");
        assert_eq!(press(&mut state, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]), Effect::Ask);
        assert_eq!((state.path(), state.rows.len()), (b"/top/b".to_vec(), 0));
        // An answer that comes too late is no answer.
        let late = Wanted { below: Vec::new(), by: Measure::Allocated, by_entries: false };
        state.answered(&late, Ok(three()), 100);
        assert_eq!(state.look, None);
        answer(&mut state, look(vec![entry("deep", true, 1, 1)]));
        assert_eq!(press(&mut state, &[KeyCode::Backspace]), Effect::Ask);
        answer(&mut state, three());
        assert_eq!((shown(&state)[state.selected], state.path()), ("b", b"/top".to_vec()));
        // It goes on being selected wherever it stands.
        answer(&mut state, look(vec![entry("a", true, 300, 5), entry("b", true, 900, 70)]));
        assert_eq!((shown(&state), state.selected), (vec!["b", "a"], 0));
        assert_eq!(press(&mut state, &[KeyCode::Left]), Effect::None, "the top isn't left");
        let shut = Entry { seen: Seen::Nothing, ..entry("shut", true, 999, 1) };
        answer(&mut state, look(vec![shut]));
        assert_eq!(press(&mut state, &[KeyCode::Home, KeyCode::Enter]), Effect::None);
    }

    #[test]
    fn the_selection_stays_within_the_rows() {
        let mut state = state();
        press(&mut state, &[KeyCode::End, KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(state.selected, 2);
        answer(&mut state, look(vec![entry("x", true, 1, 1)]));
        assert_eq!(state.selected, 0);
        answer(&mut state, look(Vec::new()));
        assert_eq!(press(&mut state, &[KeyCode::Up, KeyCode::End, KeyCode::Enter]), Effect::None);
    }

    #[test]
    fn keys_that_end_it() {
        let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
        let mut state = state();
        assert_eq!(press(&mut state, &[KeyCode::Esc]), Effect::Quit);
        assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Effect::Quit);
        assert_eq!(state.key(control('c')), Effect::Quit);
        assert_eq!((state.key(control('s')), state.sort), (Effect::None, Sort::Size));
    }

    #[test]
    fn what_is_gone_is_left_and_what_is_silent_stays() {
        let mut state = state();
        let gone = || Err(Missing::Gone("No such file or directory".to_owned()));
        assert_eq!(state.answered(&state.wanted(), Err(Missing::Silent("refused".to_owned())), 7), Effect::None);
        assert_eq!(
            (state.rows.len(), state.answered_at, state.trouble.as_deref()),
            (3, 100, Some("no answer: refused"))
        );
        press(&mut state, &[KeyCode::Enter]);
        assert_eq!(state.answered(&state.wanted(), gone(), 7), Effect::Ask);
        answer(&mut state, three());
        assert_eq!((state.path(), state.notice.as_deref()), (b"/top".to_vec(), Some("a: No such file or directory")));
        press(&mut state, &[KeyCode::Up]);
        assert_eq!(state.notice, None);
        assert_eq!(state.answered(&state.wanted(), gone(), 7), Effect::None);
        assert_eq!(state.trouble.as_deref(), Some("/top: No such file or directory"));
        answer(&mut state, three());
        assert_eq!(state.trouble, None);
    }

    #[test]
    fn only_so_much_is_remembered() {
        let mut state = state();
        let many =
            |letter: &str| (0..REMEMBERED_MAX / 2).map(|at| entry(&format!("{letter}{at}"), true, 1, 1)).collect();
        for name in ["a", "b"] {
            press(&mut state, &[KeyCode::Home]);
            let at = state.rows.iter().position(|row| row.name == name.as_bytes()).unwrap();
            state.select(at);
            press(&mut state, &[KeyCode::Enter]);
            answer(&mut state, look(many(name)));
            press(&mut state, &[KeyCode::Left]);
            answer(&mut state, three());
        }
        assert!(state.places.len() < 3 && state.grew == Some(0));
    }
}
