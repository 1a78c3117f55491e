package registrar

import "time"

// leastPeriod is the least period that the API allows (CSIDriver,
// nodeAllocatableUpdatePeriodSeconds).
const leastPeriod = 10 * time.Second

// period is a ticker whose period may change and may be none.
type period struct {
	ticker *time.Ticker
	now    time.Duration
}

// every sets the period; 0 means never. One that stays goes on.
func (p *period) every(t time.Duration) {
	if t == p.now {
		return
	}
	p.stop()
	if p.now = t; t > 0 {
		p.ticker = time.NewTicker(t)
	}
}

func (p *period) due() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

func (p *period) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
		p.ticker = nil
	}
	p.now = 0
}
