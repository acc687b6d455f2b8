//! Schedules keep to their budget, read everything once, and are the paper's algorithms at both ends of S.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::{
    super::{Budget, NO_ADDRESS, PlanError, Schedule, Step, SweepOrder, peak_unlimited},
    Case, Layout, cases, config, layouts, reference,
};

/// Replays the steps: each piece once, memory within the budget, admissions first and completions last.
fn check_steps(layout: &Layout, budget: Budget, steps: &[Step]) -> TestCaseResult {
    let mut read: Vec<_> = steps.iter().map(|step| step.piece).collect();
    read.sort_unstable();
    prop_assert_eq!(read, layout.sorted(), "every piece once");
    let mut held = 0;
    let mut left = BTreeMap::new();
    let mut admitted = BTreeSet::new();
    for step in steps {
        let file = step.piece.file;
        let cost = layout.costs[file as usize];
        prop_assert_eq!(step.admits, admitted.insert(file), "a file is admitted by its first piece");
        if step.admits {
            prop_assert!(!step.cleaning, "a clean-up admits no file");
            held += cost;
            left.insert(file, layout.pieces[file as usize].iter().filter(|piece| piece.length > 0).count());
        }
        prop_assert!(held <= budget.bytes());
        *left.get_mut(&file).unwrap() -= 1;
        prop_assert_eq!(step.completes, left[&file] == 0, "a file is completed by its last piece");
        held -= if step.completes { cost } else { 0 };
    }
    prop_assert_eq!(held, 0);
    Ok(())
}

/// Within a bin, addresses fall only where a clean-up ends.
fn check_order(steps: &[Step]) -> TestCaseResult {
    for pair in steps.windows(2) {
        let (former, step) = (&pair[0], &pair[1]);
        let returns = former.cleaning && (!step.cleaning || former.epoch < step.epoch);
        prop_assert!(former.bin < step.bin || returns || former.piece < step.piece, "{:?} then {:?}", former, step);
        prop_assert!((former.bin, former.epoch) <= (step.bin, step.epoch));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_piece_is_read_once_within_the_budget(Case { layout, budget } in cases()) {
        let steps = layout.steps(budget);
        check_steps(&layout, budget, &steps)?;
        check_order(&steps)?;
    }

    #[test]
    fn without_a_limit_it_is_one_sweep(layout in layouts()) {
        let pieces: Vec<_> = layout.steps(Budget::unlimited()).iter().map(|step| step.piece).collect();
        prop_assert_eq!(pieces, layout.sorted());
    }

    #[test]
    fn it_is_what_the_definition_says(Case { layout, budget } in cases()) {
        let steps: Vec<_> = layout.steps(budget).iter().map(|step| (step.piece, step.bin, step.epoch)).collect();
        prop_assert_eq!(steps, reference::batched(&layout, budget.bytes(), budget.threshold()));
    }

    #[test]
    fn a_threshold_of_zero_is_first_fit(Case { layout, budget } in cases()) {
        let bytes = budget.bytes();
        let bins: BTreeMap<_, _> =
            layout.steps(Budget::first_fit(bytes)).iter().map(|step| (step.piece.file, step.bin)).collect();
        prop_assert_eq!(bins, reference::first_fit(&layout, bytes));
    }

    #[test]
    fn a_threshold_of_the_budget_is_on_demand_cleaning(Case { layout, budget } in cases()) {
        let bytes = budget.bytes();
        let steps = layout.steps(Budget::on_demand(bytes));
        prop_assert!(steps.iter().all(|step| step.bin == 0), "one bin");
        let pieces: Vec<_> = steps.iter().map(|step| step.piece).collect();
        prop_assert_eq!(pieces, reference::on_demand(&layout, bytes));
    }

    /// A bin that has refused a file takes files again only when at least S bytes are free.
    #[test]
    fn a_clean_up_ends_when_the_threshold_is_free_and_not_later(Case { layout, budget } in cases()) {
        let mut schedule = Schedule::new(&layout, SweepOrder::Fragment, budget).unwrap();
        let mut former: Option<(Step, u64)> = None;
        while let Some(step) = schedule.next() {
            if let Some((former, free)) = former {
                if step.cleaning {
                    prop_assert!(free < budget.threshold(), "a clean-up reads only while it must");
                }
                if former.cleaning && !step.cleaning {
                    prop_assert!(free >= budget.threshold(), "a clean-up frees S bytes");
                }
            }
            former = Some((step, budget.bytes() - schedule.held()));
        }
    }

    #[test]
    fn a_pass_that_defers_needs_no_clean_up(Case { layout, budget } in cases()) {
        let budget = Budget::deferring(budget.bytes());
        let steps = layout.steps(budget);
        check_steps(&layout, budget, &steps)?;
        check_order(&steps)?;
        prop_assert!(steps.iter().all(|step| step.bin < 2 && (step.bin == 1 || !step.cleaning)));
        if peak_unlimited(&layout) <= budget.bytes() {
            prop_assert!(steps.iter().all(|step| step.bin == 0), "nothing has to be deferred");
        }
    }

    #[test]
    fn the_peak_without_a_limit_is_the_largest_sum_over_one_place(layout in layouts()) {
        let all = layout.sorted();
        let covers = |at: usize, file| {
            all[..=at].iter().any(|piece| piece.file == file) && all[at..].iter().any(|piece| piece.file == file)
        };
        let sum = |at| (0..layout.costs.len()).filter(|&file| covers(at, file as u32)).map(|file| layout.costs[file]).sum();
        prop_assert_eq!(peak_unlimited(&layout), (0..all.len()).map(sum).max().unwrap_or(0));
    }

    #[test]
    fn whole_files_are_read_as_listed_from_front_to_back(Case { layout, budget } in cases(), seed in any::<u64>()) {
        let mut order: Vec<u32> = (0..layout.costs.len() as u32).collect();
        order.sort_by_key(|&file| seed.rotate_left(file * 7) ^ u64::from(file));
        let schedule = Schedule::new(&layout, SweepOrder::WholeFiles(order.clone()), budget).unwrap();
        let steps: Vec<_> = schedule.collect();
        check_steps(&layout, budget, &steps)?;
        let mut expected: Vec<_> = layout.sorted();
        expected.sort_by_key(|piece| (order.iter().position(|&file| file == piece.file), piece.offset));
        prop_assert_eq!(steps.iter().map(|step| step.piece).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn files_without_an_address_come_last_by_number() {
    let layout = Layout::of(&[&[(NO_ADDRESS, 2), (NO_ADDRESS, 1)], &[(9, 1), (NO_ADDRESS, 3)], &[(5, 1)]]);
    let read: Vec<_> =
        layout.steps(Budget::unlimited()).iter().map(|step| (step.piece.file, step.piece.offset)).collect();
    assert_eq!(read, [(2, 0), (1, 0), (0, 0), (0, 2), (1, 1)]);
}

/// A file too large for the budget is named; one without a piece may cost what it likes.
#[test]
fn a_file_beyond_the_budget_is_an_error() {
    let mut layout = Layout::of(&[&[(0, 4)], &[], &[(8, 9)]]);
    layout.costs[1] = 1000;
    for order in [SweepOrder::Fragment, SweepOrder::WholeFiles(vec![1, 2, 0])] {
        let error = Schedule::new(&layout, order.clone(), Budget::on_demand(8)).unwrap_err();
        assert_eq!(error, PlanError::OverBudget { file: 2, cost: 9, budget: 8 });
        assert_eq!(Schedule::new(&layout, order, Budget::on_demand(9)).unwrap().count(), 2);
    }
    let listed = SweepOrder::WholeFiles(vec![1, 0]);
    assert_eq!(Schedule::new(&layout, listed, Budget::on_demand(8)).unwrap().count(), 1, "file 2 isn't listed");
}

#[test]
fn a_piece_beyond_what_an_offset_can_name_is_an_error() {
    let end = i64::MAX as u64;
    assert!(Schedule::new(Layout::of(&[&[(end - 4, 4)]]), SweepOrder::Fragment, Budget::unlimited()).is_ok());
    for address in [end - 3, u64::MAX - 1] {
        let error =
            Schedule::new(Layout::of(&[&[(address, 4)]]), SweepOrder::Fragment, Budget::unlimited()).unwrap_err();
        assert_eq!(error, PlanError::OutOfRange { file: 0, address, offset: 0, length: 4 });
    }
    let mut layout = Layout::of(&[&[(NO_ADDRESS, 4)]]);
    layout.pieces[0][0].offset = end;
    assert!(Schedule::new(&layout, SweepOrder::Fragment, Budget::unlimited()).is_err());
}

#[test]
fn a_list_names_each_file_once() {
    let layout = Layout::of(&[&[(0, 4)]]);
    let plan = |list| Schedule::new(&layout, SweepOrder::WholeFiles(list), Budget::unlimited()).map(drop).unwrap_err();
    assert_eq!(plan(vec![0, 0]), PlanError::NamedTwice { file: 0 });
    assert_eq!(plan(vec![1]), PlanError::UnknownFile { file: 1, files: 1 });
}
